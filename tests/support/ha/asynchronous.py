"""What an asynchronous group promises less: the tail of a master's epoch may be lost, and nothing but the tail.

1. Of the messages that a master has acknowledged in an epoch, those are lost whose position is behind the beginning of
   the next epoch; all others are stored at the queue offset that was answered.
2. A message that has survived was never shown at another queue offset.
3. A sender's surviving messages are in a queue in the order in which they were sent.
4. If `one_master`: after one member has acknowledged, a send that begins later is acknowledged by another one in a
   later epoch only. A master that is cut from etcd may break this until its lease is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from rocketpy.failover.rules.epochs import EpochList

from .history import Answer, History, Place


@attrs.define(eq=False)
class AsynchronousHistory(History):
    keeps_acknowledged: ClassVar[bool] = False
    one_master: bool = True
    showings: set[tuple[Place, str, str]] = attrs.field(factory=set)

    def shown(self, member: str, place: Place, key: str) -> None:
        """What another member, or this one, showed there before may have been cut."""
        with self._lock:
            self.showings.add((place, key, member))

    def lost(self, stored: Mapping[Place, str]) -> list[Answer]:
        """Acknowledged messages that are not where they were."""
        return [answer for answer in self.acknowledged if stored.get(answer.place) != answer.key]

    def _broken(self, stored: Mapping[Place, str], epochs: EpochList) -> dict[str, list[str]]:
        gone = self.lost(stored)
        kept = [answer for answer in self.acknowledged if stored.get(answer.place) == answer.key]
        return {
            "shown twice": self.faults,
            "lost, though not of a tail": [str(answer) for answer in gone if self._is_inside(answer, epochs)],
            "moved": self._moved(stored),
            "out of order": self._out_of_order(kept),
            "two masters": self._two_masters() if self.one_master else [],
        }

    def _is_inside(self, answer: Answer, epochs: EpochList) -> bool:
        """Whether the log says that the epoch in which this was acknowledged has the bytes at its position.

        The epoch of an answer is not known. It is that of the position, unless the member was master before, and is
        so again there: then the time tells.
        """
        begun = [entry.number for entry in epochs.entries if entry.start <= answer.phy_offset]
        appointed = [each for each in self.masterships if begun and each.epoch == begun[-1]]
        return bool(appointed) and appointed[0].master == answer.member and appointed[0].seen_s <= answer.sent_s

    def _moved(self, stored: Mapping[Place, str]) -> list[str]:
        where = {key: place for place, key in stored.items()}
        return [
            f"{key} was shown at {place} by {member}, and is at {where[key]}"
            for place, key, member in sorted(self.showings)
            if where.get(key, place) != place
        ]
