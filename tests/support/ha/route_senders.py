"""Senders that find the master by the route, as applications do: programs of official clients and of ours, with the
default settings of each: 3 s for a send, two retries, and the route asked for every 30 s."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.interop.programs import Launcher, Program

RETRIES = 2
PAUSE_MS = 5
LANGUAGES = ("python", "java-4.9.8", "go")


@attrs.define(eq=False)
class RouteSender:
    """One program. Times are those at which its lines arrived."""

    language: str
    program: Program

    @property
    def sent(self) -> int:
        return len(self.program.of_kind("sent"))

    @property
    def failed(self) -> list[str]:
        """Why sends failed, each."""
        return [f"{event['key']}: {event['error']}" for event in self.program.of_kind("failed")]

    def longest_gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time between two successful sends, of which one is in this time."""
        times = [event["arrived_s"] for event in self.program.of_kind("sent")]
        pairs = [(one, two) for one, two in itertools.pairwise(times) if two > begin_s and one < end_s]
        return max((two - one for one, two in pairs), default=end_s - begin_s)

    def wait_for_next(self) -> None:
        """Until one more send has succeeded."""
        before = self.sent
        self.program.wait_until(lambda: self.sent > before, "another send")


@contextmanager
def route_senders(
    namesrv: str, directory: Path, topic: str, languages: Sequence[str] = LANGUAGES
) -> Iterator[list[RouteSender]]:
    """Programs that send until the end. Raises: toolchain.Missing."""
    launcher = Launcher(namesrv, directory)
    try:
        senders = []
        for language in languages:
            program = launcher.start(
                language,
                "send",
                mode="stream",
                topic=topic,
                group=f"route_{language.split('-')[0]}",
                prefix=language,
                pause=PAUSE_MS,
                retries=RETRIES,
            )
            senders.append(RouteSender(language, program))
        for sender in senders:
            sender.wait_for_next()
        yield senders
        for sender in senders:
            sender.program.leave()
    finally:
        launcher.close()
