"""What the members of a group have consumed, put together, and what can be said about its order."""

from __future__ import annotations

import itertools
from collections import defaultdict

import attrs

from .programs import Program

Place = tuple[int, int]  # queue, offset


@attrs.frozen
class History:
    """What the members of a group have consumed: (time, member, offset) by queue, in order of time."""

    by_queue: dict[int, list[tuple[int, int, int]]]

    @classmethod
    def of(cls, members: list[Program]) -> History:
        by_queue: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for number, member in enumerate(members):
            for event in member.messages:
                by_queue[event["queueId"]].append((event["consumedMs"], number, event["queueOffset"]))
        return cls({queue: sorted(events, key=lambda event: event[0]) for queue, events in by_queue.items()})

    @property
    def places(self) -> list[Place]:
        return [(queue, offset) for queue, events in self.by_queue.items() for _, _, offset in events]

    @property
    def duplicates(self) -> int:
        return len(self.places) - len(set(self.places))

    @property
    def changes_of_owner(self) -> int:
        """How often a queue's next message was consumed by another member than the one before."""
        owners = [[member for _, member, _ in events] for events in self.by_queue.values()]
        return sum(a != b for of_queue in owners for a, b in itertools.pairwise(of_queue))

    @property
    def meetings(self) -> list[str]:
        """Where a member consumed from a queue, another one did, and the first one again, all within two seconds."""
        found = []
        for queue, events in self.by_queue.items():
            changes = [after for before, after in itertools.pairwise(events) if before[1] != after[1]]
            found += [
                f"queue {queue} at {b[0]}: offset {b[2]}" for a, b in itertools.pairwise(changes) if b[0] - a[0] < 2000
            ]
        return found

    @property
    def is_ordered(self) -> bool:
        """One member's own order is that of its events."""
        return all(
            [offset for _, _, offset in events] == sorted(offset for _, _, offset in events)
            for events in self.by_queue.values()
        )

    @property
    def skipped(self) -> list[str]:
        """Where a message was consumed before all earlier ones of its queue had been."""
        found = []
        for queue, events in self.by_queue.items():
            reached = 0
            for at_ms, _, offset in events:
                if offset > reached:
                    found.append(f"queue {queue} at {at_ms}: offset {offset} after {reached - 1}")
                reached = max(reached, offset + 1)
        return found

    @property
    def steps_back(self) -> dict[int, int]:
        """How often each queue was consumed again from an earlier message on."""
        return {
            queue: sum(after[2] <= before[2] for before, after in itertools.pairwise(events))
            for queue, events in self.by_queue.items()
        }
