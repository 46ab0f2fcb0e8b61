"""Messages between workers (csrc/ipc/worker_messages.h) as tests write and read them; what is not said is zero."""

from __future__ import annotations

from rocketpy.reactor.worker_messages import (
    COMMIT_OFFSET,
    ORIGIN,
    PULL_REQUEST,
    PUT_RESULT,
    REPLY,
    SEND_REQUEST,
    encode_host,
)

Fields = dict[str, object]


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
