"""The policies, each a file: which parts of the state are put off first, and which are paid first."""

from watersmeet.spilling.policies.global_productivity import Global
from watersmeet.spilling.policies.local_productivity import Local
from watersmeet.spilling.policies.policy import Links, Policy
from watersmeet.spilling.policies.punctuated import Punctuated
from watersmeet.spilling.policies.random_choice import Random
from watersmeet.spilling.policies.semantic import Semantic
from watersmeet.spilling.policies.synchronized import Synchronized

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Random, Local, Global, Synchronized, Semantic, Punctuated)
}
"""The policies by the names that users know them by."""

__all__ = ["POLICIES", "Links", "Policy"]
