"""Messages between workers (csrc/ipc/worker_messages.h) as tests write and read them; what is not said is zero."""

from __future__ import annotations

from rocketpy.native.core import Layout
from rocketpy.reactor.worker_messages import (
    COMMIT_OFFSET,
    ORIGIN,
    PULL_REQUEST,
    PUT_RESULT,
    REPLY,
    SEND_REQUEST,
    TRAFFIC,
    encode_host,
)

Fields = dict[str, object]
PULL_REPLY, SLICE = Layout("rp_msg_pull_reply"), Layout("rp_slice")


def origin(
    connection: int, *, received_ns: int = 0, host: str = "127.0.0.1", port: int = 4000, listener: int = 0
) -> Fields:
    """The fields of an rp_origin."""
    return {
        "connection": connection,
        "received_ns": received_ns,
        "peer": encode_host(host, port),
        "listener": listener,
    }


def origin_record(fields: Fields) -> bytes:
    """What a COMMAND begins with, and all of CLOSED."""
    return ORIGIN.write(**fields)


def send(origin: Fields, body: bytes = b"", **fields: object) -> bytes:
    """A SEND to topic T of producer group G."""
    sizes = {"topic_size": 1, "group_size": 1, "body_size": len(body)}
    return SEND_REQUEST.write(origin=origin, code=310, **sizes, **fields) + b"TG" + body


def pull(origin: Fields, **fields: object) -> bytes:
    """A PULL of topic T by consumer group G."""
    sizes = {"group_size": 1, "topic_size": 1, "subscription_size": 1}
    return PULL_REQUEST.write(origin=origin, code=11, **sizes, **fields) + b"GT*"


def commit_offset() -> bytes:
    """Offset 77 of queue 3 of topic TT, by group G, at 5 ms."""
    return COMMIT_OFFSET.write(offset=77, queue_id=3, group_size=1, topic_size=2, received_ns=5_999_999) + b"GTT"


def traffic() -> bytes:
    """64 messages of queue 3 of topic TT that group G got with two pulls."""
    return (
        TRAFFIC.write(messages=64, bytes=900, requests=2, wait_us=7_999, queue_id=3, group_size=1, topic_size=2)
        + b"GTT"
    )


def put_result(token: int, code: int = 0, phy_offset: int = 500) -> bytes:
    """The outcome of a put of 100 bytes, the seventh of its queue."""
    return PUT_RESULT.write(
        token=token, phy_offset=phy_offset, queue_offset=6, store_timestamp_ms=7, code=code, size=100
    )


def body_of(record: bytes) -> bytes:
    """Of a SEND."""
    return record[len(record) - int(SEND_REQUEST.read(record).body_size) :]


def reply(record: bytes) -> tuple[int, int, bytes]:
    """(connection, flags, frame) of a REPLY."""
    fixed = REPLY.read(record)
    return fixed.connection, fixed.flags, record[len(record) - int(fixed.size) :]


def pull_reply(connection: int, head: bytes, slices: list[tuple[int, int]]) -> bytes:
    """A PULL_REPLY with one message; `slices`: (phy offset, size)."""
    fixed = PULL_REPLY.write(connection=connection, head_size=len(head), slice_count=len(slices), message_count=1)
    return fixed + b"".join(SLICE.write(*one) for one in slices) + head


def pull_reply_parts(record: bytes) -> tuple[int, list[tuple[int, int]], bytes]:
    """(connection, slices, head) of a PULL_REPLY."""
    fixed = PULL_REPLY.read(record)
    head_at = PULL_REPLY.size + fixed.slice_count * SLICE.size
    found = [SLICE.read(record[at:]) for at in range(PULL_REPLY.size, head_at, SLICE.size)]
    assert len(record) == head_at + fixed.head_size
    return fixed.connection, [(one.phy_offset, one.size) for one in found], record[head_at:]
