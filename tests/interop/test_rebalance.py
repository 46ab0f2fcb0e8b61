"""One group with members of every client: all compute the same allocation, and those left take over."""

from __future__ import annotations

import pytest

from rocketpy.client.allocation import (
    Allocation,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    NearbyRoom,
    share_of,
)
from rocketpy.message.message_queue import MessageQueue
from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, wait_committed
from tests.interop.expected import check_messages, places
from tests.interop.programs import LANGUAGES, Launcher, Program, wait_for_all

QUEUES = 10  # does not divide by four or three: the shares differ, and members must agree on who gets more
COUNT = 60
QUEUES_MAX, MEMBERS_MAX = 13, 7
STRATEGIES: tuple[Allocation, ...] = (
    Averagely(),
    AveragelyByCircle(),
    ByConfig((MessageQueue("T", "r1@b", 3), MessageQueue("T", "r0@b", 0))),
    ByMachineRoom(frozenset({"r0"})),
    ConsistentHash(),
    NearbyRoom(Averagely(), lambda queue: queue.broker_name.partition("@")[0], lambda member: member.partition("-")[0]),
)


def client_id(member: Program) -> str:
    """Java and Python say it at the start, Go with its first queues."""
    return next(str(event["clientId"]) for event in list(member.events) if "clientId" in event)


def averagely(members: list[Program]) -> dict[str, list[int]]:
    """The allocation that all clients use by default: consecutive shares in the order of ids, larger ones first."""
    ids = sorted(client_id(member) for member in members)
    share, more = divmod(QUEUES, len(ids))
    allocation, begin = {}, 0
    for i, name in enumerate(ids):
        end = begin + share + (i < more)
        allocation[name] = list(range(begin, end))
        begin = end
    return allocation


def wait_balanced(members: list[Program]) -> None:
    for member in members:
        member.wait_until(lambda member=member: member.queues is not None, "its first queues")
    expected = averagely(members)
    for member in members:
        mine = expected[client_id(member)]
        member.wait_until(lambda member=member, mine=mine: member.queues == mine, f"queues {mine} of {expected}")


def send_and_check(
    launch: Launcher, broker: AnyBroker, members: list[Program], topic: str, group: str, prefix: str
) -> None:
    """A balanced group gets each message once, each from a queue that its member has."""
    before = {client_id(member): len(member.messages) for member in members}
    launch.run("go", "send", topic=topic, group=f"{topic}_producer", prefix=prefix, count=COUNT)
    wait_for_all(members, sum(before.values()) + COUNT)
    wait_committed(broker, group, topic, QUEUES)
    read = {name: member.messages[before[name] :] for member in members if (name := client_id(member))}
    everything = [event for of_member in read.values() for event in of_member]
    check_messages(everything, prefix, range(COUNT))
    assert len(set(places(everything))) == COUNT
    for member in members:
        assert member.queues is not None
        assert {event["queueId"] for event in read[client_id(member)]} <= set(member.queues)


def test_members_of_all_clients(launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker) -> None:
    """Holds: client, rebalance every 20 s; client, queues given up and taken over; client, one consumer of a group
    per queue; client, clustering."""
    topic, group = make_topic("rebalance", QUEUES), names("rebalance_group")
    members = [launch.start(name, "push", topic=topic, group=group) for name in LANGUAGES]
    members.append(launch.start("python", "push", topic=topic, group=group, backend="trio"))
    wait_balanced(members)
    send_and_check(launch, broker, members, topic, group, "all")

    members.pop(1).leave()  # in good order: it says goodbye
    wait_balanced(members)
    send_and_check(launch, broker, members, topic, group, "four")

    members.pop(0).kill()  # without a word: the broker sees its connection end
    wait_balanced(members)
    send_and_check(launch, broker, members, topic, group, "three")

    members.pop().kill()  # ours under trio
    wait_balanced(members)
    send_and_check(launch, broker, members, topic, group, "two")

    joined = launch.start("java-4.9.8", "push", topic=topic, group=group)
    members.append(joined)
    wait_balanced(members)
    for member in members:
        member.leave()


def shares(strategy: Allocation, queue_count: int, member_count: int) -> list[list[str]]:
    """What java/Allocate.java and go/allocate.go print."""
    queues = [MessageQueue("T", f"r{number % 2}@b", number // 2) for number in range(queue_count)]
    members = sorted(f"r{number % 3}-{number}" for number in range(member_count))
    each = [share_of(strategy, member, queues, members) for member in members]
    return [[f"{queue.broker_name}:{queue.queue_id}" for queue in share] for share in each]


@pytest.mark.parametrize(
    ("client", "has"), [("java-4.9.8", STRATEGIES), ("java-5.3.3", STRATEGIES), ("go", STRATEGIES[:3])]
)
def test_every_strategy_allocates_as_the_official_one(
    launch: Launcher, client: str, has: tuple[Allocation, ...]
) -> None:
    """Holds: client, one consumer of a group per queue."""
    official = launch.run(client, "allocate", queues=QUEUES_MAX, members=MEMBERS_MAX).of_kind("allocation")
    assert len(official) == len(has) * QUEUES_MAX * MEMBERS_MAX
    ours = {strategy.name: strategy for strategy in has}
    for case in official:
        expected = shares(ours[case["strategy"]], case["queues"], case["members"])
        assert case["shares"] == expected, (case["strategy"], case["queues"], case["members"])
