"""Builds a broker's registration with name servers: one body, or several if one would not fit a frame.

A registration carries the whole topic table, and a frame 16 MiB: enough for some 90 000 topics. A larger table goes in
parts of a few megabytes. Name servers keep topics that a registration does not contain, and read its topics only if its
version differs from the known one. So the last part has the version of the table, and each other part has a version
that no table ever has. A name server that missed a part does not have the table's version, and receives all parts
again.

Source: RocketMQ 4.9 `RouteInfoManager#registerBroker`, `#isBrokerTopicConfigChanged`. The reference never splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs
import trio

from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.register import compress_blocks, topic_block
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig
from rocketpy.remoting.json_writer import dump_text
from rocketpy.transport.steps import Steps

PART_BYTES = 4 * 1024 * 1024  # before compression; a quarter of a frame leaves room for one very large entry
PARTS_MAX = 65_536
TOPICS_PER_STEP = 200
READ_WRITE = PermName.READ | PermName.WRITE


@attrs.frozen
class RegistrationPart:
    """The body of one request, and its version."""

    data_version: DataVersion
    topics: int
    body: bytes


class _Form(Protocol):
    def entry(self, topic: TopicConfig) -> bytes: ...

    async def body(self, version: DataVersion, entries: list[bytes]) -> bytes: ...


class _Plain:
    """RegisterBrokerBody as JSON."""

    def entry(self, topic: TopicConfig) -> bytes:
        return f"{dump_text(topic.topic_name)}:{dump_text(topic)}".encode("utf-8", "replace")

    async def body(self, version: DataVersion, entries: list[bytes]) -> bytes:
        head = b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":' + version.encode()
        return head + b',"topicConfigTable":{' + b",".join(entries) + b"}}}"


class _Compressed:
    """The format of compressedRegister. It has no system flag and no order flag of topics."""

    def entry(self, topic: TopicConfig) -> bytes:
        return topic_block(topic)

    async def body(self, version: DataVersion, entries: list[bytes]) -> bytes:
        return await trio.to_thread.run_sync(compress_blocks, version, entries)


async def registration_parts(
    topics: Mapping[str, TopicConfig], version: DataVersion, *, permission: int, is_compressed: bool
) -> list[RegistrationPart]:
    """Encode the table in parts that each fit a frame. Other tasks run in between.

    Args:
        topics: a copy of the table, taken together with `version`. permission: of the broker; if it is not read-write,
        it is published instead of the permission of each topic.
    """
    form: _Form = _Compressed() if is_compressed else _Plain()
    groups: list[list[bytes]] = [[]]
    size = 0
    steps = Steps(TOPICS_PER_STEP)
    for topic in topics.values():
        entry = form.entry(_published(topic, permission))
        if groups[-1] and size + len(entry) > PART_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += len(entry)
        await steps.did()
    parts = []
    for number, entries in enumerate(groups):
        part_version = version if number == len(groups) - 1 else _version_of_part(version, number)
        parts.append(RegistrationPart(part_version, len(entries), await form.body(part_version, entries)))
        await trio.lowlevel.checkpoint()
    return parts


def _version_of_part(version: DataVersion, number: int) -> DataVersion:
    """The version of part `number`. Its counter is negative, and no table has such a one; the same part of the same
    table always has the same version."""
    return DataVersion(counter=-(version.counter * PARTS_MAX + number + 1), timestamp_ms=version.timestamp_ms)


def _published(topic: TopicConfig, permission: int) -> TopicConfig:
    """The topic as it appears in routes."""
    if permission & READ_WRITE == READ_WRITE:
        return topic
    return TopicConfig(
        topic_name=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=permission,
    )
