"""What must hold in every history, whatever fails. Raises Violation at the instant at which it does not.

A synchronous group: an acknowledged message is in the log of every later master, at its place; what a consumer has seen
at a place is never something else, on no member; nothing confirmed is cut. Any group: an epoch has one writer. An
asynchronous group with honest clocks and leases: no acknowledgement of an epoch follows one of a newer epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

Entry = tuple[int, int]  # epoch of the master that appended it, running number


class Violation(AssertionError):
    """A promise was broken."""


@attrs.define
class Checker:
    """Told of everything that happens, in the order of true time. Positions are numbers of entries."""

    is_sync: bool
    acknowledged: dict[int, Entry] = attrs.field(factory=dict)
    seen: dict[int, Entry] = attrs.field(factory=dict)
    writers: dict[int, str] = attrs.field(factory=dict)
    acknowledging: int = -1  # the newest epoch in which something was acknowledged
    acknowledgements: int = 0
    promotions: int = 0
    unclean: int = 0  # elections of a member that may lack something, because nobody has it all

    @property
    def promises(self) -> bool:
        """Whether nothing acknowledged may be missing."""
        return self.is_sync and not self.unclean

    def appended(self, epoch: int, writer: str) -> None:
        if self.writers.setdefault(epoch, writer) != writer:
            raise Violation(f"epoch {epoch}: {self.writers[epoch]} and {writer} both append")

    def answered_0(self, epoch: int, position: int, entry: Entry) -> None:
        """A client was told that its message at `position` is stored."""
        self.acknowledgements += 1
        if not self.is_sync:
            if epoch < self.acknowledging:
                raise Violation(f"epoch {epoch} acknowledges after epoch {self.acknowledging} did")
        elif self.promises and self.acknowledged.setdefault(position, entry) != entry:
            raise Violation(f"{position}: {entry} and {self.acknowledged[position]} both acknowledged")
        self.acknowledging = max(self.acknowledging, epoch)

    def shown(self, member: str, log: Sequence[Entry], start: int, end: int) -> None:
        """A member lets consumers see log[start:end]."""
        if not self.promises:
            return
        for position in range(start, end):
            if self.seen.setdefault(position, log[position]) != log[position]:
                raise Violation(f"{member} shows {log[position]} at {position}, seen before: {self.seen[position]}")

    def promoted(self, member: str, epoch: int, log: Sequence[Entry]) -> None:
        """A member begins to serve as master."""
        self.promotions += 1
        if self.promises:
            self._holds(f"{member}, master of epoch {epoch},", log)

    def diverged(self, member: str) -> None:
        if self.promises:
            raise Violation(f"{member} had to halt: its log differs below what it had shown")

    def ended(self, logs: dict[str, Sequence[Entry]]) -> None:
        """Everything is healed and all members are in sync."""
        for member, log in logs.items():
            if self.promises:
                self._holds(member, log)
        common = min(len(log) for log in logs.values())
        if len({tuple(log[:common]) for log in logs.values()}) > 1:
            raise Violation("logs of members in sync differ")

    def _holds(self, who: str, log: Sequence[Entry]) -> None:
        for known, what in ((self.acknowledged, "acknowledged"), (self.seen, "seen")):
            lost = [at for at, entry in known.items() if at >= len(log) or log[at] != entry]
            if lost:
                raise Violation(f"{who} lacks {len(lost)} {what} messages, the first at {lost[0]}: {known[lost[0]]}")
