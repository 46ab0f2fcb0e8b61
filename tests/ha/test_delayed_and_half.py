"""Delayed messages, and transactions that are open, over a failover: never lost, and repeated little."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.interop import toolchain
from tests.interop.programs import Launcher, Program
from tests.support.ha.delayed import TOPIC, DelayedSends
from tests.support.ha.group import Group, real_group

FAILOVERS = 3
REPEATED_S = 5.0  # copied delay offsets are a second old, and the machine may be busy
DELAY_S = 1.0
TRANSACTIONS = 60
CHECKS = {"transactionTimeOut": "2000", "transactionCheckInterval": "1000", "transactionCheckMax": "1000"}


def test_delayed_messages(pair: Group, seed: int) -> None:
    kills: list[float] = []
    with DelayedSends(pair.servers, seed) as sends:
        for _ in range(FAILOVERS):
            wait_for_more(pair, sends)
            first = pair.master() or ""
            kills.append(max(sends.acknowledged.values()))
            pair.history.happened(f"kill -9 of all of {first}")
            pair.members[first].kill_all()
            pair.wait_for(lambda first=first: pair.master() == pair.other(first), "another master")  # type: ignore[misc]  # bound now
            pair.members[first].begin()
            pair.wait_in_sync()
        wait_for_more(pair, sends)
    wanted = set(sends.acknowledged)
    pair.wait_for(lambda: wanted <= set(delivered(pair)), "all delayed messages")
    repeated = [key for key, count in delivered(pair).items() if count > 1]
    print(f"{len(wanted)} delayed messages over {FAILOVERS} failovers, {len(repeated)} of them delivered again")
    long_ago = [
        key
        for key in repeated
        if key in wanted and not any(0 <= at - sends.acknowledged[key] < DELAY_S + REPEATED_S for at in kills)
    ]
    assert long_ago == [], "delivered again, though delivered long before a failover"
    pair.check()


def wait_for_more(group: Group, sends: DelayedSends) -> None:
    begun = len(sends.acknowledged)
    group.wait_for(lambda: len(sends.acknowledged) > begun + 150, "delayed messages that are acknowledged")


def delivered(group: Group) -> Counter[str]:
    """How often each message is in its real topic."""
    return Counter(group.stored(group.members[group.master() or ""], TOPIC).values())


@pytest.mark.parametrize("language", ["java-4.9.8", "python"])
def test_transactions_that_are_open(tmp_path: Path, language: str) -> None:
    """The new master asks for the outcome of those that it has not got; and what was committed before is there."""
    topic = "Transactions"
    try:
        toolchain.java_directory("4.9.8")
    except toolchain.Missing as missing:
        toolchain.skip_or_fail(str(missing))
    with real_group(tmp_path, settings=CHECKS) as group:
        launcher = Launcher(group.namesrv.namesrv, tmp_path)
        try:
            launcher.run("python", "send", topic=topic, group="first", prefix="first")  # creates the topic
            producer = launcher.start(
                language, "transaction", topic=topic, group="transactions", prefix="t", count=TRANSACTIONS,
                outcomes="commit,unknown", answers="commit,rollback,unknown",
            )  # fmt: skip
            producer.wait_until(lambda: producer.of_kind("ended"), "the end of its transactions")
            first = group.master() or ""
            group.history.happened(f"kill -9 of all of {first}")
            group.members[first].kill_all()
            group.wait_for(lambda: group.master() == group.other(first), "the failover")
            group.members[first].begin()
            group.wait_in_sync()
            open_ = {f"t-{number}" for number in range(1, TRANSACTIONS, 2)}
            producer.wait_until(lambda: open_ <= asked(producer), "checks of all open transactions")
            wanted = {f"t-{number}" for number in range(TRANSACTIONS) if number % 2 == 0 or number % 3 == 0}
            group.wait_for(lambda: wanted <= found(group, topic), "all committed messages")
            producer.leave()
        finally:
            launcher.close()
        assert found(group, topic) == wanted | {"first-0"}
        group.check()


def asked(producer: Program) -> set[str]:
    return {event["key"] for event in producer.of_kind("checked")}


def found(group: Group, topic: str) -> set[str]:
    return set(group.stored(group.members[group.master() or ""], topic).values())
