"""The codec reads headers of sends, pulls and ends of transactions as `rocketpy.remoting.headers` does, or leaves them
to the manager.

What Python refuses never takes the fast path; what a client's header class writes always does. Derandomised: a failure
comes back on every run.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import RocketError
from rocketpy.message.properties import decode_properties
from rocketpy.native.core import lib
from rocketpy.reactor import worker_messages
from rocketpy.remoting.command import FLAG_ONEWAY, RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from rocketpy.remoting.headers.send import EndTransactionRequestHeader, SendMessageRequestHeader, read_send_header
from tests.support.budget import budget
from tests.support.fast_path import FastPath, drain

seeded = settings(derandomize=True, max_examples=budget(40, 300), deadline=None, database=None)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
PROPERTY = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
NAMED = st.sampled_from(["WAIT", "CLUSTER", "DELAY", "TAGS"]) | PROPERTY
PROPERTIES = st.dictionaries(NAMED, PROPERTY, max_size=4).map(
    lambda some: "".join(f"{name}\x01{value}\x02" for name, value in some.items())
)
SENDS = st.builds(
    SendMessageRequestHeader,
    producer_group=TEXT,
    topic=TEXT,
    default_topic=TEXT,
    default_topic_queue_nums=INT32,
    queue_id=INT32,
    sys_flag=INT32,
    born_timestamp_ms=INT64,
    flag=INT32,
    properties=PROPERTIES,
    reconsume_times=st.none() | INT32,
    unit_mode=st.booleans(),
    max_reconsume_times=st.none() | INT32,
    batch=st.booleans(),
)
PULLS = st.builds(
    PullMessageRequestHeader,
    consumer_group=TEXT,
    topic=TEXT,
    queue_id=INT32,
    queue_offset=INT64,
    max_msg_nums=INT32,
    sys_flag=INT32,
    commit_offset=INT64,
    suspend_timeout_ms=INT64,
    subscription=st.none() | TEXT,
    sub_version=INT64,
    expression_type=st.none() | TEXT,
)
ENDS = st.builds(
    EndTransactionRequestHeader,
    producer_group=TEXT,
    tran_state_table_offset=INT64,
    commit_log_offset=INT64,
    commit_or_rollback=st.sampled_from([8, 12]) | INT32,
    from_transaction_check=st.booleans(),
    msg_id=st.none() | TEXT,
    transaction_id=st.none() | TEXT,
    broker_name=st.none() | TEXT,
)
ODD_VALUES = st.sampled_from(["", "x", "1.0", " 1", "+7", "-0", "2147483648", "9223372036854775808", "TRUE", "null"])


H = TypeVar("H")


class Routes(NamedTuple):
    """A codec, and what it wrote for the send worker, the pull worker and the manager."""

    path: FastPath
    send: Any
    pull: Any
    manager: Any

    def take(self, command: RemotingCommand) -> tuple[int, bytes]:
        """The type of the one message that the codec makes of `command`, and the message."""
        assert self.path.frame(command) == lib.RP_OK
        lib.rp_codec_wake(self.path.codec)
        (message,) = [*drain(self.send), *drain(self.pull), *drain(self.manager)]
        return message

    def read_twice(
        self, command: RemotingCommand, kind: int, of: Callable[[RemotingCommand], H], is_damaged: bool
    ) -> tuple[H, bytes] | None:
        """The header as Python reads it, and the message of `kind` that the codec makes of it. None: Python refuses
        the header, or it is damaged, and the codec left it to the manager as it is."""
        taken, message = self.take(command)
        try:
            expected = of(RemotingCommand.decode(command.encode()))
        except RocketError:
            assert taken == lib.RP_MSG_COMMAND
            return None
        if taken == lib.RP_MSG_COMMAND:
            assert is_damaged
            assert worker_messages.frame_of(message) == command.encode()
            return None
        assert taken == kind
        return expected, message


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routes]:
    path = FastPath(tmp_path_factory.mktemp("codec"))
    yield Routes(
        path,
        *(lib.rp_ring_reader_open(ring) for ring in (path.to_send, path.to_pull, path.to_manager)),
    )
    path.close()


@st.composite
def damaged(draw: st.DrawFn, fields: dict[str, str]) -> dict[str, str]:
    """A field or two taken out, or with an odd value."""
    changed = dict(fields)
    for key in draw(st.lists(st.sampled_from(sorted(fields)), max_size=2, unique=True)):
        changed.pop(key)
        if draw(st.booleans()):
            changed[key] = draw(ODD_VALUES)
    return changed


def request(code: int, fields: dict[str, str], serialize_type: SerializeType, body: bytes = b"") -> RemotingCommand:
    command = RemotingCommand.request(code, ext_fields=fields, body=body)
    command.serialize_type, command.opaque = serialize_type, 77
    return command


def fields_of_send(header: SendMessageRequestHeader, code: int) -> dict[str, str]:
    return (header if code == 10 else header.to_v2()).to_ext_fields()


@seeded
@given(st.data(), SENDS, st.sampled_from([10, 310, 320]), st.sampled_from(SerializeType), st.booleans())
def test_send(
    routes: Routes,
    data: st.DataObject,
    header: SendMessageRequestHeader,
    code: int,
    serialize_type: SerializeType,
    is_damaged: bool,
) -> None:
    fields = fields_of_send(header, code)
    command = request(code, data.draw(damaged(fields)) if is_damaged else fields, serialize_type, b"body")
    if (both := routes.read_twice(command, lib.RP_MSG_SEND, read_send_header, is_damaged)) is None:
        return
    expected, message = both
    read = worker_messages.decode_send(message, None)  # type: ignore[arg-type]  # no channel is asked
    assert (read.opaque, read.code, read.body) == (77, code, b"body")
    assert (read.producer_group, read.topic, read.default_topic) == (
        expected.producer_group,
        expected.topic,
        expected.default_topic,
    )
    assert (read.queue_id, read.sys_flag, read.message_flag) == (expected.queue_id, expected.sys_flag, expected.flag)
    assert (read.default_topic_queue_nums, read.born_timestamp_ms, read.reconsume_times) == (
        expected.default_topic_queue_nums,
        expected.born_timestamp_ms,
        expected.reconsume_times or 0,
    )
    assert (read.max_reconsume_times, read.unit_mode, read.is_batch) == (
        expected.max_reconsume_times,
        expected.unit_mode,
        expected.batch,
    )
    properties = decode_properties(expected.properties or "")
    assert read.wait_store == (properties.pop("WAIT", "true").lower() == "true")
    properties.pop("CLUSTER", None)
    assert decode_properties(read.properties.decode()) == properties


@seeded
@given(st.data(), PULLS, st.sampled_from([11, 361]), st.sampled_from(SerializeType), st.booleans())
def test_pull(
    routes: Routes,
    data: st.DataObject,
    header: PullMessageRequestHeader,
    code: int,
    serialize_type: SerializeType,
    is_damaged: bool,
) -> None:
    fields = header.to_ext_fields()
    command = request(code, data.draw(damaged(fields)) if is_damaged else fields, serialize_type)
    if (both := routes.read_twice(command, lib.RP_MSG_PULL, PullMessageRequestHeader.of, is_damaged)) is None:
        return
    expected, message = both
    read = worker_messages.decode_pull(message, None)  # type: ignore[arg-type]  # no channel is asked
    assert (read.opaque, read.code) == (77, code)
    assert (read.subscription, read.expression_type) == (expected.subscription or "", expected.expression_type or "")
    for name in (
        "consumer_group",
        "topic",
        "queue_id",
        "queue_offset",
        "max_msg_nums",
        "sys_flag",
        "commit_offset",
        "suspend_timeout_ms",
        "sub_version",
    ):
        assert getattr(read, name) == getattr(expected, name), name


@seeded
@given(st.data(), ENDS, st.sampled_from(SerializeType), st.booleans(), st.booleans())
def test_end_of_a_transaction(
    routes: Routes,
    data: st.DataObject,
    header: EndTransactionRequestHeader,
    serialize_type: SerializeType,
    is_oneway: bool,
    is_damaged: bool,
) -> None:
    fields = header.to_ext_fields()
    command = request(37, data.draw(damaged(fields)) if is_damaged else fields, serialize_type)
    if is_oneway:
        command.flag |= FLAG_ONEWAY
    both = routes.read_twice(command, lib.RP_MSG_END_TRANSACTION, EndTransactionRequestHeader.of, is_damaged)
    if both is None:
        return
    expected, message = both
    read, group = worker_messages.END_REQUEST.read(message), message[worker_messages.END_REQUEST.size :]
    flags = lib.RP_REQUEST_ONEWAY * is_oneway | lib.RP_REQUEST_ROCKETMQ * (serialize_type is SerializeType.ROCKETMQ)
    assert (read.opaque, read.code, read.flags, group.decode()) == (77, 37, flags, expected.producer_group)
    assert (read.queue_offset, read.phy_offset) == (expected.tran_state_table_offset, expected.commit_log_offset)
    is_known = expected.commit_or_rollback in (8, 12)  # other actions are the manager's, or none
    assert read.action == (expected.commit_or_rollback if is_known else 0)
