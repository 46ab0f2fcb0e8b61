"""Heartbeats, and the check of a subscription."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from pathlib import Path

import attrs
import pytest
import trio

from rocketpy.broker.managers import filter_compiler
from rocketpy.broker.managers.repeated_heartbeats import REMEMBERED_GROUPS_MAX
from rocketpy.broker.processors import client_manage
from rocketpy.codes import LanguageCode
from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.client import HeartbeatData
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import FakeChannel, SlowPathRig


def test_a_heartbeat_makes_group_and_retry_topic_and_both_are_on_the_disk(tmp_path: Path) -> None:
    """Holds: broker, clients and their subscriptions; trap, the version in the answer to a heartbeat; trap, retry
    and dead letter topics are made where they are needed."""
    rig = SlowPathRig(tmp_path)
    response = trio.run(lambda: rig.heartbeat("a", group="G", topics={"T": "*"}, producer="P"))
    assert response.code == 0 and response.version == 409
    retry = rig.services.topics.select("%RETRY%G")
    assert retry is not None and (retry.write_queue_nums, retry.perm) == (1, 6)
    assert '"%RETRY%G"' in (tmp_path / "config" / "topics.json").read_text()
    assert '"G"' in (tmp_path / "config" / "subscriptionGroup.json").read_text()
    assert rig.services.producers.find_channel("a") is rig.channel


Change = Callable[[SlowPathRig], Awaitable[object] | None]
"""Something that happens between two heartbeats of a client."""


async def nothing(rig: SlowPathRig) -> None: ...


async def other_subscriptions(rig: SlowPathRig) -> object:
    return await rig.heartbeat("b", group="G", topics={"T": "*", "U": "*"}, channel=FakeChannel(2))


async def same_subscriptions(rig: SlowPathRig) -> object:
    return await rig.heartbeat("b", group="G", topics={"T": "*"}, channel=FakeChannel(2))


@pytest.mark.parametrize(
    ("change", "is_repeated"),
    [
        (nothing, True),
        (same_subscriptions, True),
        (other_subscriptions, False),
        (lambda rig: rig.services.groups.delete("G"), False),
        (lambda rig: rig.services.topics.delete("%RETRY%G"), False),
        (lambda rig: rig.services.consumers.unregister("G", 1), False),
        (lambda rig: rig.services.producers.unregister("P", 1), False),
        (lambda rig: rig.services.consumers.connection_lost(1), False),
        (lambda rig: rig.services.groups.update(SubscriptionGroupConfig(group_name="G")), False),
    ],
)
def test_a_heartbeat_that_repeats_the_last_one_only_renews_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, is_repeated: bool
) -> None:
    """A heartbeat makes again each entry that was removed since the last one."""
    rig, read = SlowPathRig(tmp_path), []

    async def read_body(kind: type[HeartbeatData], data: bytes | None) -> HeartbeatData:
        read.append(data)
        return kind.decode_request(data)

    monkeypatch.setattr(client_manage, "read_body", read_body)

    async def heartbeat() -> int:
        return (await rig.heartbeat("a", group="G", topics={"T": "*"}, producer="P")).code

    async def scene() -> None:
        assert await heartbeat() == 0
        changed = change(rig)
        if isawaitable(changed):
            await changed
        read.clear()
        rig.clock.advance(30_000)
        assert await heartbeat() == 0

    trio.run(scene)
    assert len(read) == (not is_repeated)
    services, now_ms = rig.services, rig.clock.monotonic_ms()
    entry = services.consumers.group("G")
    assert entry is not None and entry.subscriptions.keys() == {"T"}
    for info in (entry.channels[1], services.producers.members("P")[0]):
        assert info.last_heartbeat.seen_ms == now_ms
    assert services.groups.select("G") is not None and services.topics.select("%RETRY%G") is not None


@pytest.mark.parametrize("field", ["version", "language", "body", "account"])
def test_a_heartbeat_that_says_anything_else_is_no_repeated_one(tmp_path: Path, field: str) -> None:
    rig = SlowPathRig(tmp_path)
    body = b'{"clientID": "a", "producerDataSet": [{"groupName": "P"}]}'
    request = RemotingCommand(code=34, body=body, version=409, language=LanguageCode.JAVA)
    trio.run(rig.processors[34].process, request, rig.channel)
    repeated = rig.services.repeated_heartbeats
    assert repeated.renew(request, 1, "") and not repeated.renew(request, 2, "")
    others = {"version": 410, "language": LanguageCode.GO, "body": body + b" "}
    other = request if field == "account" else attrs.evolve(request, **{field: others[field]})
    assert not repeated.renew(other, 1, "mallory" if field == "account" else "")


def test_a_heartbeat_with_many_groups_is_no_repeated_one(tmp_path: Path) -> None:
    """Fault: The groups of one heartbeat, 32 000 times the same, stopped the loop for 48 ms."""
    rig = SlowPathRig(tmp_path)
    body = {"clientID": "a", "producerDataSet": [{"groupName": "P"}] * (REMEMBERED_GROUPS_MAX + 1)}
    request = RemotingCommand(code=34, body=fastjson.dumps(body), version=409, language=LanguageCode.JAVA)
    trio.run(rig.processors[34].process, request, rig.channel)
    assert not rig.services.repeated_heartbeats.renew(request, 1, "")


def test_a_client_that_has_left_one_of_its_groups_is_recognised(tmp_path: Path) -> None:
    """Fault: Which of its groups was asked for it was a matter of chance."""
    rig = SlowPathRig(tmp_path)

    async def scene() -> None:
        for number in range(20):
            await rig.heartbeat("a", group=f"G{number}", topics={"T": "*"})
            rig.services.consumers.unregister(f"G{number}", 1)
        await rig.heartbeat("a", group="G", topics={"T": "*"})

    trio.run(scene)
    found = rig.services.consumers.client_on(1)
    assert found is not None and found.client_id == "a"


def test_of_two_connections_of_a_client_the_one_with_the_last_heartbeat_is_used(tmp_path: Path) -> None:
    rig, second = SlowPathRig(tmp_path), FakeChannel(2)

    async def scene() -> None:
        for channel in (rig.channel, second, rig.channel):  # the third repeats the first
            await rig.heartbeat("a", producer="P", channel=channel)

    trio.run(scene)
    assert rig.services.producers.find_channel("a") is rig.channel


def test_a_heartbeat_of_a_group_that_may_not_be_created_is_entered_all_the_same(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, auto_create_subscription_group=False)
    assert trio.run(lambda: rig.heartbeat("a", group="G", topics={"T": "*"})).code == 0
    assert rig.services.topics.select("%RETRY%G") is None
    assert rig.services.consumers.group("G") is not None


def test_a_group_name_too_long_for_a_record_gets_no_retry_topic(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    group = "g" * 121
    assert trio.run(lambda: rig.heartbeat("a", group=group, topics={"T": "*"})).code == 0
    assert rig.services.topics.select("%RETRY%" + group) is None


@pytest.mark.parametrize("body", [None, b"{", b"[]"])
@pytest.mark.parametrize("code", [34, 46])
def test_a_body_that_is_none_is_refused(tmp_path: Path, code: int, body: bytes | None) -> None:
    assert trio.run(lambda: SlowPathRig(tmp_path).ask(code, None, body)).code == 1


@pytest.mark.parametrize(
    ("expression_type", "code", "remark"),
    [
        (None, 0, None),
        ("TAG", 0, None),
        ("SQL92", 1, "The broker does not support consumer to filter message by SQL92"),
    ],
)
def test_check_client_config(tmp_path: Path, expression_type: str | None, code: int, remark: str | None) -> None:
    """Holds: answer, clients (34, 35, 46)."""
    rig = SlowPathRig(tmp_path)
    body = {"clientId": "a", "group": "G", "subscriptionData": {"topic": "T", "expressionType": expression_type}}
    response = trio.run(lambda: rig.ask(46, None, body))
    assert (response.code, response.remark) == (code, remark)


@pytest.mark.parametrize(
    ("kind", "text", "code", "remark"),
    [
        ("SQL92", "a > 1", 0, None),
        ("SQL92", "a > 1 b", 23, "character 7: 'b' does not fit"),
        ("CLASS", "x", 1, "The broker does not support consumer to filter message by CLASS"),
    ],
)
def test_check_client_config_with_sql(tmp_path: Path, kind: str, text: str, code: int, remark: str | None) -> None:
    rig = SlowPathRig(tmp_path, enable_property_filter=True)
    data = {"topic": "T", "expressionType": kind, "subString": text}
    response = trio.run(lambda: rig.ask(46, None, {"clientId": "a", "group": "G", "subscriptionData": data}))
    assert response.code == code and (response.remark or "").startswith(remark or "")


def filtered(rig: SlowPathRig, texts: list[str], kind: str = "SQL92", *, group: str = "G") -> RemotingCommand:
    """A heartbeat of a group with a filter for each of many topics."""
    subscriptions = [
        {"topic": f"T{number}", "subString": text, "subVersion": 1, "expressionType": kind}
        for number, text in enumerate(texts)
    ]
    consumer = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": subscriptions}
    return trio.run(lambda: rig.ask(34, None, {"clientID": "a", "consumerDataSet": [consumer]}))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions that were compiled."""
    found: list[str] = []

    def compile_one(text: str) -> bytes:
        found.append(text)
        return b"program"

    monkeypatch.setattr(filter_compiler, "_compile", compile_one)
    return found


def test_the_filters_of_a_heartbeat_are_compiled_once(tmp_path: Path, compiled: list[str]) -> None:
    rig = SlowPathRig(tmp_path, enable_property_filter=True)
    assert filtered(rig, [f"a = {number}" for number in range(600)]).code == 0
    assert len(compiled) == 600


@pytest.mark.parametrize("texts", [[f"a = {number}" for number in range(700)], [f"{n}" * 8000 for n in range(9)]])
def test_more_filters_than_can_be_compiled_and_kept_are_refused(
    tmp_path: Path, compiled: list[str], texts: list[str]
) -> None:
    rig = SlowPathRig(tmp_path, enable_property_filter=True)
    answer = filtered(rig, texts)
    assert answer.code == 1 and "the SQL92 filters of one client take" in (answer.remark or "")
    assert compiled == [] and rig.services.consumers.group("G") is None


@pytest.mark.parametrize(
    ("is_enabled", "kind", "reason"),
    [(False, "SQL92", "set enablePropertyFilter=true"), (True, "CLASS", "this type is not known")],
)
def test_filters_that_are_not_evaluated_are_not_compiled(
    tmp_path: Path, compiled: list[str], caplog: pytest.LogCaptureFixture, is_enabled: bool, kind: str, reason: str
) -> None:
    rig = SlowPathRig(tmp_path, enable_property_filter=is_enabled)
    assert filtered(rig, ["a > 1"] * 700, kind).code == 0
    assert compiled == []
    assert [line for line in caplog.messages if reason in line]


def test_the_filters_of_earlier_heartbeats_count(tmp_path: Path, compiled: list[str]) -> None:
    rig = SlowPathRig(tmp_path, enable_property_filter=True)
    assert filtered(rig, [f"a = {number}" for number in range(400)]).code == 0
    answer = filtered(rig, [f"b = {number}" for number in range(400)], group="H")
    assert answer.code == 1 and "the SQL92 filters of one client take" in (answer.remark or "")
    assert filtered(rig, [f"b = {number}" for number in range(400)]).code == 0, "those that are replaced do not"


@pytest.mark.parametrize(("count", "code"), [(4, 0), (5, 1)])
def test_the_expressions_of_a_group_are_bounded(tmp_path: Path, count: int, code: int) -> None:
    """Fault: A repeated heartbeat with 2 MiB of tags blocked the manager for 0.1 s each time."""
    rig = SlowPathRig(tmp_path)
    assert filtered(rig, ["a||" * 10_900] * count, "TAG").code == code


def test_the_subscriptions_of_all_connections_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A host with a hundred connections could take gigabytes of the manager's memory."""
    rig, text = SlowPathRig(tmp_path), "x" * 10_000
    monkeypatch.setattr(client_manage, "ALL_SUBSCRIPTIONS_SIZE_MAX", 50_000)
    channels = [FakeChannel(number) for number in range(1, 7)]

    def heartbeat(member: int, text: str, group: str = "") -> tuple[int, str | None]:
        answer = trio.run(
            lambda: rig.heartbeat(
                f"c{member}", group=group or f"G{member}", topics={"T": text}, channel=channels[member]
            )
        )
        return answer.code, answer.remark

    assert [heartbeat(member, text)[0] for member in range(4)] == [0] * 4
    code, remark = heartbeat(4, text)
    assert code == 1 and "the subscriptions of all groups would take" in (remark or "")
    assert rig.services.consumers.group("G4") is None
    assert heartbeat(4, text, group="G0")[0] == 0, "a group has its subscriptions once"
    assert heartbeat(3, text + "y")[0] == 0 and heartbeat(3, text)[0] == 0
    rig.services.consumers.connection_closed(channels[1].connection)
    assert heartbeat(5, text)[0] == 0, "the place of a group that has left is free"
    for channel in channels:
        rig.services.consumers.connection_closed(channel.connection)
    assert rig.services.consumers.size == 0


def test_groups_that_register_meanwhile_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole heartbeat fits when it is checked, and not when its last group is entered."""
    rig, text = SlowPathRig(tmp_path), "x" * 500
    monkeypatch.setattr(client_manage, "ALL_SUBSCRIPTIONS_SIZE_MAX", 2_700)
    monkeypatch.setattr(client_manage, "GROUPS_PER_STEP", 1)

    def groups(client: str) -> dict[str, object]:
        topics = [{"topic": "T", "subString": text}]
        return {
            "clientID": client,
            "consumerDataSet": [{"groupName": f"{client}{n}", "subscriptionDataSet": topics} for n in range(3)],
        }

    codes = []

    async def ask(client: str, connection: int) -> None:
        codes.append((await rig.ask(34, None, groups(client), channel=FakeChannel(connection))).code)

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "a", 1)
            nursery.start_soon(ask, "b", 2)

    trio.run(both)
    assert 1 in codes and rig.services.consumers.size <= 2_700
