"""`wm.Spill`: when work is put off, which, and how it is paid."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from watersmeet.arguments import bytes_of, fields_to_python, is_number, is_whole, microseconds, suggest, to_python
from watersmeet.errors import DefinitionError
from watersmeet.spilling.policies import POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """Puts work off when it is too much, and pays for it later; every result comes, exactly once.

    Attributes:
        memory: What the state that is probed may take, all workers together, such as "2 GB"; None for any size.
        within: How long a batch may take, such as "1 second"; None for any time.
        policy: What is put off first: "synchronized", "global", "local", "semantic", "punctuated" or "random".
        pay: What is paid first, by the same names; None for the policy by which it was put off.
        partitions: Into how many partitions the state is cut where one attribute ties all streams.
        low: Below this share of a mark, units come back.
        share: The share of the state that is put off at once.
        fill: Up to this share of a mark, units come back.
        interval: Units come back no more often than this.
        correlation: A parent join follows a child's unit from which it gets at least this share of its results.
        quotas: For the policy "punctuated": streams in the order of their priority, each with how many of its tuples
            are paid for before it is the next one's turn, such as `{"auctions": 100, "bids": 1000}`.
        weight: A numeric column such as "a.priority": what matters most; for the policy "semantic".
        oldest: What is owed for longer is paid, whatever else there is to do.
        disk: What cold state may take on disk before it is paid; None for any size.
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
        fields_to_python(self)
        if self.memory is None and self.within is None:
            raise DefinitionError("Spill: give memory='2 GB', within='1 second' or both, or nothing is put off.")
        _ = self.memory_bytes, self.disk_bytes, self.seconds, self.interval_us, self.oldest_us
        if self.within is not None and not self.seconds:
            raise DefinitionError(
                f"Spill(within={self.within!r}): a batch can't take no time; write it like '1 second'."
            )
        for name, value in (("policy", self.policy), ("pay", self.pay)):
            if not (isinstance(value, str) and value in POLICIES) and not (value is None and name == "pay"):
                known = ", ".join(map(repr, POLICIES))
                raise DefinitionError(
                    f"Spill({name}={value!r}): the policies are {known}.{suggest(value, [*POLICIES])}"
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
            raise DefinitionError("Spill(policy='semantic') needs to know what matters: weight='a.priority'.")
        if self.weight is not None and "semantic" not in (self.policy, self.pay):
            raise DefinitionError(f"Spill(weight={self.weight!r}): only the policy 'semantic' goes by a weight.")

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
