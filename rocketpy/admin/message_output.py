"""A message as the commands show it: every field, where its body goes, and what became of it in each group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rocketpy.client.messages import ReceivedMessage
from rocketpy.message.host import format_host

from .admin import Admin
from .java_files import BODY_DIRECTORY, body_path
from .java_text import consume_result_text, properties_text
from .message_lines import body_members
from .messages import message_tracks
from .output import Output, time_text


def body_options(function: Any) -> Any:
    """Add the options for the body of a message: --print-body, --body-file and --java-compat."""
    function = click.option("--print-body", is_flag=True, help="Print the body as UTF-8 text.")(function)
    body_file = click.option("--body-file", type=click.Path(dir_okay=False), help="Write the body to this file.")
    function = body_file(function)
    return click.option(
        "--java-compat", is_flag=True, help=f"Write the body below {BODY_DIRECTORY}, as Java's mqadmin does."
    )(function)


def print_detail(
    out: Output,
    message: ReceivedMessage,
    *,
    java_compat: bool,
    body_file: str | None,
    print_body: bool,
    with_offset_id: bool = True,
) -> None:
    """The detail block; the body goes where the options say."""
    path = body_path(message) if java_compat else Path(body_file) if body_file else None
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(message.body)
    fields: list[tuple[str, object]] = [
        ("OffsetID:", message.offset_msg_id),
        ("Topic:", message.topic),
        ("Tags:", f"[{message.tags or 'null'}]"),
        ("Keys:", f"[{' '.join(message.keys) or 'null'}]"),
        ("Queue ID:", message.queue.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.phy_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", time_text(message.born_timestamp_ms)),
        ("Store Timestamp:", time_text(message.store_timestamp_ms)),
        ("Born Host:", format_host(message.born_host)),
        ("Store Host:", format_host(message.store_host)),
        ("System Flag:", message.sys_flag),
        ("Properties:", properties_text(message.properties)),
        ("Message Body Path:", path if path is not None else f"not written ({len(message.body)} bytes)"),
    ]
    for label, value in fields if with_offset_id else fields[1:]:
        out.line(f"{label:<20} {value}")
    if print_body:
        out.line(f"{'Message Body:':<20} {message.body.decode('utf-8', 'replace')}")
    if out.is_json:
        out.record(**message_record(message, with_body=print_body), body_path=None if path is None else str(path))


def message_record(message: ReceivedMessage, *, with_body: bool) -> dict[str, object]:
    """A message as a row for programs."""
    record: dict[str, object] = {
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "topic": message.topic,
        "broker_name": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "commit_log_offset": message.phy_offset,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "flag": message.flag,
        "reconsume_times": message.reconsume_times,
        "born_timestamp_ms": message.born_timestamp_ms,
        "store_timestamp_ms": message.store_timestamp_ms,
        "born_host": format_host(message.born_host),
        "store_host": format_host(message.store_host),
        "sys_flag": message.sys_flag,
        "body_size": len(message.body),
    }
    return record | (body_members(message.body) if with_body else {})


async def print_tracks(admin: Admin, out: Output, message: ReceivedMessage) -> None:
    """Print the state of consumption of the message by each group, on one line, as in Java."""
    out.line()
    out.line()
    tracks = await message_tracks(admin, message)
    out.line("".join(str(track) for track in tracks) or "WARN: No Consumer")
    for track in tracks:
        out.record(
            consumer_group=track.consumer_group,
            track_type=track.track_type.value,
            exception_desc=track.exception_desc,
        )


async def consume_directly(admin: Admin, out: Output, message: ReceivedMessage, group: str, client_id: str) -> None:
    result = await admin.consume_directly(format_host(message.store_host), group, client_id, message.offset_msg_id)
    out.line(consume_result_text(result))
    out.record(consume_result=str(result.consume_result), remark=result.remark, spent_time_ms=result.spent_time_ms)


async def show_or_consume(
    admin: Admin,
    out: Output,
    message: ReceivedMessage,
    consumer_group: str | None,
    client_id: str | None,
    body: dict[str, Any],
) -> None:
    """Have that member consume the message; without one show the message, with what became of it in each group."""
    if consumer_group and client_id:
        await consume_directly(admin, out, message, consumer_group, client_id)
    else:
        print_detail(out, message, **body)
        await print_tracks(admin, out, message)
