"""What strangers put into messages, names and traces does no harm to the operator who looks at it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest

from rocketpy import aio
from rocketpy.admin import java_files, output
from rocketpy.admin.admin import FIGURES_BYTES_MAX, Admin
from rocketpy.admin.core import ANSWER_OBJECTS_MAX
from rocketpy.admin.group_requests import PROPERTIES_MAX
from rocketpy.codes import RequestCode
from rocketpy.errors import BodyInvalid
from rocketpy.message.trace import Pub
from rocketpy.remoting.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo
from rocketpy.remoting.bodies.group import GroupList
from rocketpy.remoting.bodies.schema import REPORT_OBJECTS_MAX
from tests.support import loops
from tests.support.admin import Mqadmin, with_group
from tests.support.clients import admin_client
from tests.support.cluster import FakeCluster

SHOW = ("queryMsgByOffset", "-b", "broker-a", "-t", "T", "-i", "0", "-o", "0")
ESCAPE = "\x1b]0;title\x07"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /tmp/rocketmq."""
    root = tmp_path / "a" / "rocketmq"
    monkeypatch.setattr(java_files, "JAVA_DIRECTORY", root)
    monkeypatch.setattr(java_files, "BODY_DIRECTORY", root / "msgbodys")
    return root


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_is_terminal", lambda stream: True)


def message(body: bytes, **properties: str) -> Callable[[FakeCluster], None]:
    def script(cluster: FakeCluster) -> None:
        encoded = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
        broker = cluster.add_broker(T=1)
        broker.store("T", 0, body, encoded.encode())
        broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=[]))

    return script


@pytest.mark.parametrize("msg_id", ["../../outside", "/outside", "..", ".", "a/b", "a" * 5000, "a\nb"])
def test_the_id_of_a_message_is_no_path(mqadmin: Mqadmin, tmp_path: Path, directory: Path, msg_id: str) -> None:
    """Fault: `mqadmin queryMsgById --java-compat` wrote a body to any path named by UNIQ_KEY."""
    chosen = msg_id.replace("/outside", f"{tmp_path}/outside", 1) if msg_id.startswith("/") else msg_id
    lines = mqadmin(*SHOW, "--java-compat", script=message(b"body", UNIQ_KEY=chosen))
    (written,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written.parent == directory / "msgbodys" and written.read_bytes() == b"body"
    assert any(line.endswith(str(written)) for line in lines)


def test_a_usual_id_is_the_name_of_the_file(mqadmin: Mqadmin, directory: Path) -> None:
    mqadmin(*SHOW, "--java-compat", script=message(b"body", UNIQ_KEY="C0A8010A12670BAD"))
    assert (directory / "msgbodys" / "C0A8010A12670BAD").read_bytes() == b"body"


@pytest.mark.parametrize("client_id", ["../outside", "/outside", "..", "a" * 255])
def test_the_id_of_a_member_is_no_path(
    mqadmin: Mqadmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client_id: str
) -> None:
    """Fault: `mqadmin consumerStatus` wrote a member's state to any path that the member gave as its client id."""
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    ids = [client_id.replace("/outside", f"{tmp_path}/outside") if client_id[0] == "/" else client_id, "10.0.0.1@1#2"]

    def script(cluster: FakeCluster) -> None:
        members = [Connection(client_id=one) for one in ids]
        with_group(cluster).answer(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection(connection_set=members))

    mqadmin("consumerStatus", "-g", "g", script=script)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent.parent for path in written} == {inside}
    assert {path.name for path in written} == {f"member-{1 + sorted(ids).index(ids[0])}", ids[1]}


def test_a_body_is_not_written_into_the_directory_of_another_user(
    mqadmin: Mqadmin, tmp_path: Path, directory: Path
) -> None:
    (tmp_path / "real").mkdir()
    directory.mkdir(parents=True)
    (directory / "msgbodys").symlink_to(tmp_path / "real")
    script = message(b"body", UNIQ_KEY="A1")
    mqadmin(*SHOW, "--java-compat", script=script, status=1)
    assert "belongs to another user" in mqadmin.error
    assert not list((tmp_path / "real").iterdir())


def test_a_terminal_gets_no_control_characters(mqadmin: Mqadmin, terminal: None) -> None:
    script = message(f"{ESCAPE}body\x9b".encode(), UNIQ_KEY="A1", TAGS=ESCAPE)
    text = "\n".join(mqadmin(*SHOW, "--print-body", script=script))
    assert "\\x1b]0;title\\x07body\\x9b" in text
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_nor_do_errors(mqadmin: Mqadmin, terminal: None) -> None:
    mqadmin("topicRoute", "-t", ESCAPE, script=message(b""), status=4)
    assert "\\x1b" in mqadmin.error and "\x1b" not in mqadmin.error


def test_scripts_get_the_text_as_it_is(mqadmin: Mqadmin) -> None:
    script = message(b"a\x07b", UNIQ_KEY="A1")
    assert any(line.endswith("a\x07b") for line in mqadmin(*SHOW, "--print-body", script=script))


@pytest.mark.parametrize("timestamp_ms", [10**15, -(10**15), 2**63 - 1])
def test_a_time_beyond_all_calendars_hides_no_other_trace(mqadmin: Mqadmin, timestamp_ms: int) -> None:
    sent = Pub(1709288551127, "R", "pg", "T", "ID", "A", "k", "10.0.0.1:10911", 5, 12, 0, "OFF", True)
    records = [attrs.evolve(sent, timestamp_ms=timestamp_ms), sent]

    def script(cluster: FakeCluster) -> None:
        body = "".join(record.encode() for record in records).encode()
        broker = cluster.add_broker(RMQ_SYS_TRACE_TOPIC=1)
        broker.store("RMQ_SYS_TRACE_TOPIC", 0, body, b"KEYS\x01ID\x02UNIQ_KEY\x01T1")

    lines = mqadmin("queryMsgTraceById", "-i", "ID", script=script)
    assert len([line for line in lines if line.startswith("Pub")]) == 2
    assert str(timestamp_ms) in "\n".join(lines)


def too_many_objects() -> bytes:
    return b'{"subscriptionSet":[' + b"{}," * REPORT_OBJECTS_MAX + b"{}]}"


def too_many_properties() -> bytes:
    return ConsumerRunningInfo(properties=dict.fromkeys(map(str, range(PROPERTIES_MAX + 1)), "")).encode()


@pytest.mark.parametrize("state", [too_many_objects, too_many_properties])
def test_a_member_that_tells_too_much_is_refused(mqadmin: Mqadmin, state: Callable[[], bytes]) -> None:
    """Fault: The state of one consumer, 9 MB of it, took 900 MB of memory of mqadmin and of the console."""

    def script(cluster: FakeCluster) -> None:
        with_group(cluster).answer(RequestCode.GET_CONSUMER_RUNNING_INFO, state())

    mqadmin("consumerStatus", "-g", "g", "-i", "10.0.0.1@1#2", script=script, status=1)
    assert "at most" in mqadmin.error


ASK: list[tuple[Callable[[Admin, str], Awaitable[object]], int, bytes]] = [
    (Admin.runtime_info, RequestCode.GET_BROKER_RUNTIME_INFO, b" " * (FIGURES_BYTES_MAX + 1)),
    (Admin.ha_status, RequestCode.GET_BROKER_HA_STATUS, b" " * (FIGURES_BYTES_MAX + 1)),
    (
        Admin.group_configs,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        b'{"subscriptionGroupTable":{' + b'"":{},' * ANSWER_OBJECTS_MAX + b'"":{}}}',
    ),
]


@pytest.mark.parametrize(("ask", "code", "answer"), ASK, ids=["figures", "replication", "groups"])
def test_a_broker_that_tells_too_much_is_refused(
    ask: Callable[[Admin, str], Awaitable[object]], code: int, answer: bytes
) -> None:
    """Fault: A stranger's broker in an open name server stopped the console for a minute with 13 MB of groups."""

    async def main() -> None:
        async with aio.open_nursery() as nursery:
            cluster = FakeCluster(nursery)
            broker = cluster.add_broker()
            broker.answer(code, answer)
            async with admin_client(cluster) as admin:
                with pytest.raises(BodyInvalid, match="at most"):
                    await ask(admin, broker.address)
            nursery.cancel()

    loops.run(main)
