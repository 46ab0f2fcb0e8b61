"""What clients were told, and the promises of a synchronous group that are checked against it.

1. A message answered SUCCESS is stored at the queue offset that was answered.
2. No (queue, offset) was ever seen with two messages, by any reader, on any member.
3. What was seen is never gone.
4. A sender's acknowledged messages are in a queue in the order in which they were sent.
5. After one member has acknowledged, a send that begins later is acknowledged by another one in a later epoch only.
"""

from __future__ import annotations

import bisect
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import attrs

from rocketpy.failover.rules.epochs import EpochList

SUCCESS, NO_SLAVE = 0, 11  # codes of answers
Place = tuple[int, int]  # queue, queue offset


@attrs.frozen
class Answer:
    """One answered send. Times are of CLOCK_MONOTONIC, seconds."""

    key: str
    sender: int
    number: int
    code: int
    member: str
    place: Place
    sent_s: float
    answered_s: float
    phy_offset: int = -1  # in the log of `member`; -1: it is not stored


@attrs.frozen
class Mastership:
    """An epoch, as etcd showed it first at `seen_s`."""

    epoch: int
    master: str
    seen_s: float


@attrs.define(eq=False)
class History:
    """Threads add to it; `faults` has every broken promise that was seen at once."""

    answers: list[Answer] = attrs.field(factory=list)
    seen: dict[Place, tuple[str, str]] = attrs.field(factory=dict)  # key, member that showed it first
    masterships: list[Mastership] = attrs.field(factory=list)
    events: list[tuple[float, str]] = attrs.field(factory=list)  # faults that were made
    faults: list[str] = attrs.field(factory=list)
    checks: list[Callable[[Any], None]] = attrs.field(factory=list)  # what else a healed group is asked for
    over: threading.Event = attrs.field(factory=threading.Event)  # its clients may end
    keeps_acknowledged: ClassVar[bool] = True
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def happened(self, text: str) -> None:
        self.events.append((time.monotonic(), text))

    def answered(self, answer: Answer) -> None:
        with self._lock:
            self.answers.append(answer)

    def shown(self, member: str, place: Place, key: str) -> None:
        """A reader got `key` there."""
        with self._lock:
            before = self.seen.setdefault(place, (key, member))
            if before[0] != key:
                self.faults.append(f"{member} shows {key} at {place}, {before[1]} showed {before[0]}")

    def appointed(self, epoch: int, master: str) -> None:
        """etcd says so. What is told first of an epoch counts for its time."""
        with self._lock:
            if epoch not in {each.epoch for each in self.masterships}:
                self.masterships.append(Mastership(epoch, master, time.monotonic()))

    @property
    def acknowledged(self) -> list[Answer]:
        return [answer for answer in list(self.answers) if answer.code == SUCCESS]

    def codes(self) -> Mapping[int, int]:
        """Number of answers by code."""
        found: dict[int, int] = defaultdict(int)
        for answer in list(self.answers):
            found[answer.code] += 1
        return dict(found)

    def longest_gap_s(self) -> float:
        """The longest time without an acknowledgement between the first one and the last."""
        times = sorted(answer.answered_s for answer in self.acknowledged)
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)

    # --- the promises -------------------------------------------------------------------------------------------------

    def check(self, stored: Mapping[Place, str], epochs: EpochList | None = None) -> None:
        """Hold everything against what the master of a healed group has: its messages, and the epochs of its log.

        Raises:
            AssertionError: with the broken promises, at most ten of each kind.
        """
        broken = self._broken(stored, epochs or EpochList())
        told = [f"{kind}: {len(cases)}\n  " + "\n  ".join(cases[:10]) for kind, cases in broken.items() if cases]
        if told:
            raise AssertionError("\n".join([*told, self.story()]))

    def _broken(self, stored: Mapping[Place, str], epochs: EpochList) -> dict[str, list[str]]:
        return {
            "shown twice": self.faults,
            "acknowledged and not there": self._lost(stored),
            "seen and gone": self._gone(stored),
            "out of order": self._out_of_order(self.acknowledged),
            "two masters": self._two_masters(),
        }

    def story(self) -> str:
        """Faults and masterships in their order."""
        told = [*self.events, *((m.seen_s, f"{m.master} is master of epoch {m.epoch}") for m in self.masterships)]
        begin = min((at for at, _ in told), default=0.0)
        return "\n".join(f"{at - begin:8.3f} s  {text}" for at, text in sorted(told))

    def _lost(self, stored: Mapping[Place, str]) -> list[str]:
        return [str(answer) for answer in self.acknowledged if stored.get(answer.place) != answer.key]

    def _gone(self, stored: Mapping[Place, str]) -> list[str]:
        return [
            f"{key} at {place}, shown by {member}; there is {stored.get(place)}"
            for place, (key, member) in self.seen.items()
            if stored.get(place) != key
        ]

    @staticmethod
    def _out_of_order(answers: Iterable[Answer]) -> list[str]:
        faults, last = [], dict[tuple[int, int], Answer]()
        for answer in sorted(answers, key=lambda answer: (answer.sender, answer.number)):
            where = answer.sender, answer.place[0]
            before = last.get(where)
            if before is not None and before.place[1] >= answer.place[1]:
                faults.append(f"{answer} behind {before}")
            last[where] = answer
        return faults

    def _two_masters(self) -> list[str]:
        """Sends that a member acknowledged though none of its epochs is as new as one that had acknowledged before.

        The epoch of an answer is not known. The oldest that is possible is taken: that excuses too much at most.
        """
        faults = []
        acknowledged: list[tuple[float, int]] = []  # when, and the newest epoch until then; both grow
        for answer in sorted(self.acknowledged, key=lambda answer: answer.answered_s):
            known = bisect.bisect_left(acknowledged, (answer.sent_s, -1))
            floor = acknowledged[known - 1][1] if known else 0
            possible = [m.epoch for m in self.masterships if m.master == answer.member and m.epoch >= floor]
            if not possible:
                faults.append(f"{answer}, after epoch {floor} had acknowledged")
            elif not acknowledged or min(possible) > acknowledged[-1][1]:
                acknowledged.append((answer.answered_s, min(possible)))
        return faults
