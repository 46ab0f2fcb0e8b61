"""Workers of a running broker are killed one after the other, while it delivers what waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rocketpy.message.record import StoredRecord
from tests.support.broker import RunningBroker
from tests.support.live_log import records_in

WAIT_S = 120.0
POLL_S = 0.05
GONE_S, GONE_POLL_S = 60.0, 0.01
PAUSE_S = 0.1  # at the most, from a delivery to a kill: anywhere in the next one


def stored(broker: RunningBroker, kept: Path | None = None) -> list[StoredRecord]:
    """All records of the log, of all topics. `kept`: links to its files, also to those that it has lost."""
    records: list[StoredRecord] = []
    for path in sorted((kept or broker.store / "commitlog").iterdir()):
        records += records_in(path)
    return records


def wait_for(condition: Callable[[], bool], broker: RunningBroker) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, broker.text()[-4000:]
        time.sleep(POLL_S)


def wait_until_gone(broker: RunningBroker, name: str, pid: int) -> None:
    """Wait until the supervisor has replaced the worker `name`, which had this pid."""
    deadline = time.monotonic() + GONE_S
    while broker.workers().get(name, pid) == pid:
        assert time.monotonic() < deadline, f"{name} was not replaced:\n{broker.text()[-2000:]}"
        time.sleep(GONE_POLL_S)


def wait_for_more(count: Callable[[], int], before: int, broker: RunningBroker) -> int:
    """Wait until `count()` has grown; its value."""
    wait_for(lambda: count() > before, broker)
    return count()


def kill_while_delivering(
    broker: RunningBroker,
    victims: Iterable[str],
    expected: int,
    count_delivered: Callable[[], int],
    choose: random.Random,
) -> list[int]:
    """Kill a victim whenever more was delivered (a worker, or "all"), then wait for its successor and at last for all
    deliveries; how many had come at each kill."""
    counts: list[int] = []
    for victim in victims:
        before = count_delivered()
        if before == expected:
            break
        counts.append(wait_for_more(count_delivered, before, broker))
        time.sleep(choose.random() * PAUSE_S)
        if victim == "all":
            broker.kill_all()
            broker.start()
            continue
        pid = broker.kill_worker(victim)
        wait_for(lambda: broker.workers().get(victim, pid) != pid, broker)  # noqa: B023 - called at once
    wait_for(lambda: count_delivered() >= expected, broker)
    print(f"of {expected} messages were delivered at the kills: {counts}")
    return counts
