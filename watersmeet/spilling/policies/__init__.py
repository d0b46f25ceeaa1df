"""The policies, one a file: which parts of the state are spilled first, and which are paid first."""

from watersmeet.spilling.policies.global_productivity import GlobalPolicy
from watersmeet.spilling.policies.local_productivity import LocalPolicy
from watersmeet.spilling.policies.policy import Links, Policy
from watersmeet.spilling.policies.punctuated import PunctuatedPolicy
from watersmeet.spilling.policies.random_choice import RandomPolicy
from watersmeet.spilling.policies.semantic import SemanticPolicy
from watersmeet.spilling.policies.synchronized import SynchronizedPolicy

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (RandomPolicy, LocalPolicy, GlobalPolicy, SynchronizedPolicy, SemanticPolicy, PunctuatedPolicy)
}
"""The policies, by the names that users know; `watersmeet.spilling.options` lists the same names."""

__all__ = ["POLICIES", "Links", "Policy"]
