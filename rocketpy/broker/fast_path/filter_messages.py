"""The manager's messages about subscriptions and SQL92 expressions (csrc/ipc/worker_messages.h)."""

from __future__ import annotations

from collections.abc import Iterable

from rocketpy.message.tags import string_hash
from rocketpy.native.core import Layout, ffi
from rocketpy.reactor.worker_messages import PULL_REQUEST
from rocketpy.remoting.fast_path import FilterPlace

SUBSCRIPTION = Layout("rp_msg_subscription")
EXPRESSION = Layout("rp_msg_expression")
FILTER = Layout("rp_msg_filter")


def encode_subscription(
    group: str,
    topic: str,
    *,
    flags: int,
    sub_version: int = 0,
    tags: Iterable[str] = (),
    program: bytes = b"",
    place: FilterPlace | None = None,
) -> bytes:
    """SUBSCRIPTION: `tags`, or the program of a SQL92 expression and where its filter bits are."""
    hashes = [string_hash(tag) for tag in tags]
    names = group.encode(), topic.encode()
    fixed = SUBSCRIPTION.write(
        sub_version=sub_version,
        flags=flags,
        group_size=len(names[0]),
        topic_size=len(names[1]),
        tag_count=len(hashes),
        program_size=len(program),
        place=_place(place),
    )
    return b"".join((fixed, ffi.buffer(ffi.new("int32_t[]", hashes)), *names, program))


def _place(place: FilterPlace | None) -> dict[str, object]:
    """The fields of rp_filter_place."""
    if place is None:
        return {}
    positions = place.positions
    return {
        "id": place.id,
        "mark": place.mark,
        "bit_count": place.bit_count,
        "count": len(positions),
        "positions": positions,
    }


def encode_expression(pull: bytes, program: bytes) -> bytes:
    """EXPRESSION: the program of the text that a PULL record brings, with the bytes that it has there."""
    request = PULL_REQUEST.read(pull)
    start = PULL_REQUEST.size + request.group_size + request.topic_size
    text = pull[start : start + request.subscription_size]
    return EXPRESSION.write(len(text), len(program)) + text + program


def encode_filter(
    group: str, topic: str, *, flags: int = 0, program: bytes = b"", place: FilterPlace | None = None
) -> bytes:
    """FILTER; without names it removes all."""
    names = group.encode(), topic.encode()
    fixed = FILTER.write(
        flags=flags,
        group_size=len(names[0]),
        topic_size=len(names[1]),
        program_size=len(program),
        place=_place(place),
    )
    return b"".join((fixed, *names, program))
