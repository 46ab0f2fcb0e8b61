"""Delayed messages, and transactions that are open, over a failover: never lost, and repeated little."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.remoting.command import RemotingCommand
from tests.interop import toolchain
from tests.interop.programs import Launcher, Program
from tests.support.ha.delayed import TOPIC, DelayedSends
from tests.support.ha.group import Group, real_group
from tests.support.ha.history import SUCCESS
from tests.support.ha.needs import needs_network
from tests.support.ha.network import network
from tests.support.ha.places import ANSWER_S, QUEUES, connected
from tests.support.pair import log_hashes

FAILOVERS = 3
REPEATED_S = 5.0  # copied delay offsets are a second old, and the machine may be busy
DELAY_S = 1.0
SHOWN_S = 0.3  # until a message that is due is in its queue
STAYS_IN_SYNC = {"slaveTimeout": "20000", "haMaxTimeSlaveNotCatchup": "20000"}  # a slave without a stream
TABLES_S = 1.7  # in which a slave asks for tables more than once
TRANSACTIONS = 60


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


@needs_network
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_delayed_messages_whose_copies_the_new_master_does_not_have(tmp_path: Path, seed: int, role: str) -> None:
    """The slave has all delayed messages. The log stream is cut before they are due, the copying of tables goes on,
    and the master dies after it has delivered them.
    Fault: After a failover to a shorter log, delayed messages of the new master were never delivered."""
    settings = {"brokerRole": role, "messageDelayLevel": "4s"} | STAYS_IN_SYNC
    with network("a", "b", "etcd") as places, real_group(tmp_path, network=places, settings=settings) as group:
        group.wait_in_sync()
        first = group.master() or ""
        second = group.other(first)
        with DelayedSends(group.servers, seed, pause_s=0.001) as sends:
            group.wait_for(lambda: len(sends.acknowledged) >= 100, "delayed messages that are acknowledged")
            sends.stop()
        sent_s = list(sends.acknowledged.values())
        waiting = [member.store for member in group.members.values()]
        group.wait_for(lambda: len({tuple(log_hashes(store).items()) for store in waiting}) == 1, "equal logs")
        time.sleep(max(0.0, sent_s[0] + 3.7 - time.monotonic()))
        places.cut_port(first, group.members[first].port + 1, second)
        group.history.happened(f"the log stream of {first} is cut; tables are copied")
        time.sleep(max(0.0, sent_s[-1] + 4.0 + SHOWN_S - time.monotonic()))
        for queue_id in range(QUEUES):  # of copies that only the master has
            end = ask(group, first, 30, queue_id)
            ask(group, first, 15, queue_id, commitOffset=str(end))
        time.sleep(TABLES_S)
        group.history.happened(f"kill -9 of all of {first}")
        group.members[first].kill_all()
        assert log_hashes(group.members[second].store) != log_hashes(group.members[first].store), "nothing was cut"
        group.wait_for(lambda: group.master() == second, "another master")
        reached: dict[int, tuple[int, int]] = {}  # by queue: committed, end

        def look() -> bool:
            for queue_id in range(len(reached), QUEUES):  # its connections end when it opens the epoch
                reached[queue_id] = ask(group, second, 14, queue_id), ask(group, second, 30, queue_id)
            return True

        group.wait_for(look, "an answer for each queue")
        assert all(committed <= end for committed, end in reached.values()), reached
        group.wait_for(lambda: set(sends.acknowledged) <= set(delivered(group)), "all delayed messages")
        places.join_port(first, group.members[first].port + 1, second)  # before, its kernel would send what it has
        group.members[first].begin()
        group.wait_in_sync()
        group.check()


def ask(group: Group, name: str, code: int, queue_id: int, **fields: str) -> int:
    """Ask a member for an offset of queue `queue_id`, or of group G in it."""
    member = group.members[name]
    queue = {"consumerGroup": "G", "topic": TOPIC, "queueId": str(queue_id)}
    with connected(member.server, ANSWER_S) as connection:
        answer = connection.ask(RemotingCommand.request(code, ext_fields=queue | fields))
    assert answer.code == SUCCESS, answer
    return int((answer.ext_fields or {}).get("offset", 0))


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
        pytest.skip(str(missing))
    with real_group(tmp_path) as group:
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
