"""The policies, each a file: which parts of the state are put off first, and which are paid first."""

from watersmeet.spilling.policies.base import Links, Policy
from watersmeet.spilling.policies.globally import Global
from watersmeet.spilling.policies.local import Local
from watersmeet.spilling.policies.punctuated import Punctuated
from watersmeet.spilling.policies.randomly import Random
from watersmeet.spilling.policies.semantic import Semantic
from watersmeet.spilling.policies.synchronized import Synchronized

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Random, Local, Global, Synchronized, Semantic, Punctuated)
}
"""The policies by the names that users know them by."""

__all__ = ["POLICIES", "Links", "Policy"]
