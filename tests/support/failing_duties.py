"""Background duties of a server that run once a second of a test's clock, of which one fails."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rocketpy.transport.duties import Duty


class Broken(Exception):
    """A fault that a test has injected."""


def failing_duties(duties: Iterable[Duty], failing: str) -> tuple[list[Duty], dict[str, int]]:
    """The duties, of which the one named `failing` raises Broken; and their calls by name, counted from now on."""
    duties = list(duties)
    calls = dict.fromkeys((duty.name for duty in duties), 0)

    def counted(duty: Duty) -> Duty:
        async def run() -> None:
            calls[duty.name] += 1
            if duty.name == failing:
                raise Broken("injected")
            await duty.run()

        return attrs.evolve(duty, interval_s=1.0, first_s=0.0, run=run)

    return [counted(duty) for duty in duties], calls
