"""`wm.Spill`: when work is spilled, which first, and when what is owed is paid."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from watersmeet.arguments import bytes_of, fields_to_python, is_number, is_whole, microseconds, suggest, to_python
from watersmeet.errors import DefinitionError

PolicyName = Literal["random", "local", "global", "synchronized", "semantic", "punctuated"]
"""The policies, by the names that users know; `watersmeet.spilling.policies` implements them."""
POLICY_NAMES: tuple[str, ...] = get_args(PolicyName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """Spills work when there is too much of it, and pays for it later; every result comes, exactly once.

    Attributes:
        memory: How much memory hot state, which is probed, may take on all workers together, such as "2 GB"; None for
            no limit.
        within: How long a batch may take, such as "1 second"; None for no limit.
        policy: What is spilled first: "synchronized", "global", "local", "semantic", "punctuated" or "random".
        pay: What is paid first, by the same names; None for the policy by which it was spilled.
        partitions: The number of partitions of the state where one attribute ties all streams.
        low: Units come back below this share of a limit.
        share: The share of the state that is spilled at once.
        fill: Units come back up to this share of a limit.
        interval: The least time between two returns of units.
        correlation: A unit of a parent join follows a child's unit that yields at least this share of its results to
            it.
        quotas: For the policy "punctuated": streams by descending priority, each with the number of its tuples that
            are paid for before the next stream's turn, such as `{"auctions": 100, "bids": 1000}`.
        weight: For the policy "semantic": a numeric column such as "a.priority"; rows with larger values matter more.
        oldest: What has been owed for longer is paid, whatever else there is to do.
        disk: How much disk spilled state may take before it is paid; None for no limit.
    """

    memory: str | int | None = None
    within: str | timedelta | None = None
    policy: str = "synchronized"
    pay: str | None = None
    partitions: int = 32
    low: float = 0.85
    share: float = 0.30
    fill: float = 0.96
    interval: str | timedelta = "2 minutes"
    correlation: float = 0.1
    weight: str | None = None
    quotas: Mapping[str, int] | None = None
    oldest: str | timedelta = "10 minutes"
    disk: str | int | None = None

    def __post_init__(self) -> None:
        """Check and convert the options.

        Raises:
            DefinitionError: If no limit is set, or an option is out of range or contradicts another.
        """
        fields_to_python(self)
        if self.memory is None and self.within is None:
            raise DefinitionError(
                "Spill: set memory='2 GB', within='1 second' or both; without a limit, nothing is ever spilled."
            )
        _ = self.memory_bytes, self.disk_bytes, self.seconds, self.interval_us, self.oldest_us
        if self.within is not None and not self.seconds:
            raise DefinitionError(
                f"Spill(within={self.within!r}): the limit must be longer than zero, such as '1 second'."
            )
        for name, value in (("policy", self.policy), ("pay", self.pay)):
            if not (isinstance(value, str) and value in POLICY_NAMES) and not (value is None and name == "pay"):
                names = ", ".join(map(repr, POLICY_NAMES))
                raise DefinitionError(
                    f"Spill({name}={value!r}): the policies are {names}.{suggest(value, [*POLICY_NAMES])}"
                )
        for name, share in (("low", self.low), ("share", self.share), ("fill", self.fill)):
            if not is_number(share) or not 0 < share <= 1:
                raise DefinitionError(f"Spill({name}={share!r}): give a fraction above 0 and at most 1, such as 0.3.")
        if not is_number(self.correlation) or not 0 <= self.correlation <= 1:
            raise DefinitionError(f"Spill(correlation={self.correlation!r}): give a share between 0 and 1.")
        if self.low > self.fill:
            raise DefinitionError(f"Spill(low={self.low}, fill={self.fill}): low can't be above fill.")
        if not is_whole(self.partitions):
            raise DefinitionError(f"Spill(partitions={self.partitions!r}): give a whole number, 1 or more.")
        if self.quotas is not None and "punctuated" not in (self.policy, self.pay):
            raise DefinitionError(f"Spill(quotas={self.quotas!r}): only the policy 'punctuated' has quotas.")
        if self.quotas is not None and not isinstance(self.quotas, Mapping):
            raise DefinitionError(f"Spill(quotas={self.quotas!r}): give a dict such as {{'auctions': 100}}.")
        for name, quota in (self.quotas or {}).items():
            if not isinstance(name, str) or not is_whole(to_python(quota)):
                raise DefinitionError(
                    f"Spill(quotas=...): {quota!r} for '{name}' is not a number of tuples, 1 or more."
                )
        if self.weight is not None and not isinstance(self.weight, str):
            raise DefinitionError(f"Spill(weight={self.weight!r}): name a column, such as weight='a.priority'.")
        if "semantic" in (self.policy, self.pay) and self.weight is None:
            raise DefinitionError(
                "Spill(policy='semantic') needs a column that says what matters: weight='a.priority'."
            )
        if self.weight is not None and "semantic" not in (self.policy, self.pay):
            raise DefinitionError(f"Spill(weight={self.weight!r}): only the policy 'semantic' uses a weight.")

    @property
    def memory_bytes(self) -> int | None:
        """`memory` in bytes."""
        return _bytes(self.memory, "memory")

    @property
    def disk_bytes(self) -> int | None:
        """`disk` in bytes."""
        return _bytes(self.disk, "disk")

    @property
    def seconds(self) -> float | None:
        """`within` in seconds."""
        return None if self.within is None else microseconds(self.within, "Spill(within)") / 1e6

    @property
    def interval_us(self) -> int:
        """`interval` in microseconds."""
        return microseconds(self.interval, "Spill(interval)")

    @property
    def oldest_us(self) -> int:
        """`oldest` in microseconds."""
        return microseconds(self.oldest, "Spill(oldest)")


def _bytes(size: str | int | None, name: str) -> int | None:
    if size is None or (isinstance(size, int) and is_whole(size)):
        return size
    return bytes_of(size, f"Spill({name})")
