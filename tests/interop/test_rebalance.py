"""One group with members of every client: all compute the same allocation, and those left take over."""

from __future__ import annotations

from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, wait_committed
from tests.interop.expected import check_messages, places
from tests.interop.programs import LANGUAGES, Launcher, Program, wait_for_all

QUEUES = 10  # does not divide by four or three: the shares differ, and members must agree on who gets more
COUNT = 60


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
    before = {member.name: len(member.messages) for member in members}
    launch.run("go", "send", topic=topic, group=f"{topic}_producer", prefix=prefix, count=COUNT)
    wait_for_all(members, sum(before.values()) + COUNT)
    wait_committed(broker, group, topic, QUEUES)
    read = {member.name: member.messages[before[member.name] :] for member in members}
    everything = [event for of_member in read.values() for event in of_member]
    check_messages(everything, prefix, range(COUNT))
    assert len(set(places(everything))) == COUNT
    for member in members:
        assert member.queues is not None
        assert {event["queueId"] for event in read[member.name]} <= set(member.queues)


def test_members_of_all_clients(launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker) -> None:
    """Holds: client, rebalance every 20 s; client, queues given up and taken over; client, one consumer of a group
    per queue; client, clustering."""
    topic, group = make_topic("rebalance", QUEUES), names("rebalance_group")
    members = [launch.start(name, "push", topic=topic, group=group) for name in LANGUAGES]
    wait_balanced(members)
    send_and_check(launch, broker, members, topic, group, "all")

    members.pop(1).leave()  # in good order: it says goodbye
    wait_balanced(members)
    send_and_check(launch, broker, members, topic, group, "three")

    members.pop(0).kill()  # without a word: the broker sees its connection end
    wait_balanced(members)
    send_and_check(launch, broker, members, topic, group, "two")

    joined = launch.start("java-4.9.8", "push", topic=topic, group=group)
    members.append(joined)
    wait_balanced(members)
    for member in members:
        member.leave()
