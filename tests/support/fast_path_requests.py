"""Sends and pulls of a topic T and a group G, as clients encode them."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.remoting.command import RemotingCommand
from tests.support.fast_path import FastPath


def ready(rig: FastPath) -> FastPath:
    """With a topic T, and a group G that subscribes to it."""
    rig.add_topic("T")
    rig.add_group("G")
    rig.subscribe("G", "T")
    rig.tables_end()
    return rig


def send_v2(
    topic: str = "T", body: bytes = b"hello", queue: int = 0, properties: str = "", opaque: int = 7, **more: str
) -> RemotingCommand:
    fields = {
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": "1700000000000",
        "h": "3",
        "i": properties,
    }
    command = RemotingCommand.request(310, ext_fields=fields | more, body=body)
    command.opaque = opaque
    return command


def pull(
    offset: int = 0,
    queue: int = 0,
    *,
    flags: int = 4,
    expression: str = "*",
    maximum: int = 32,
    opaque: int = 9,
    suspend: int = 15000,
    group: str = "G",
    topic: str = "T",
    commit: int = 0,
) -> RemotingCommand:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": str(maximum),
        "sysFlag": str(flags),
        "commitOffset": str(commit),
        "suspendTimeoutMillis": str(suspend),
        "subscription": expression,
        "subVersion": "1",
        "expressionType": "TAG",
    }
    command = RemotingCommand.request(11, ext_fields=fields)
    command.opaque = opaque
    return command


def records_of(reply: RemotingCommand) -> list[StoredRecord]:
    return list(decode_records(reply.body or b""))
