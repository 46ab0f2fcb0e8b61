"""REGISTER_BROKER (103): a broker's topics, plain or compressed.

Compressed, it is a zlib stream of, big-endian: size and JSON of the DataVersion; number of topics; per topic size and
``name readQueueNums writeQueueNums perm topicFilterType``; size and JSON of the filter server list. The system flag
and the order flag of topics get lost on the way.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from rocketpy.codes import MQVersion
from rocketpy.errors import BodyInvalid

from ..fastjson import dumps
from .schema import Body, body, read_int32, wire
from .topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicFilterType

_SIZE = struct.Struct(">i")
_COMPRESS_LEVEL = 9
INFLATED_SIZE_MAX = 256 * 1024 * 1024


@body
class RegisterBrokerBody(Body):
    filter_server_list: list[str] = wire("filterServerList", factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = wire(
        "topicConfigSerializeWrapper", factory=TopicConfigSerializeWrapper
    )

    def encode_compressed(self) -> bytes:
        """The compressed form."""
        wrapper = self.topic_config_serialize_wrapper
        topics = [topic_block(topic) for topic in wrapper.topic_config_table.values()]
        return compress_blocks(wrapper.data_version, topics, self.filter_server_list)

    @classmethod
    def decode_compressed(cls, data: bytes) -> RegisterBrokerBody:
        """Read the compressed form.

        Raises:
            BodyInvalid: no zlib stream, larger than 256 MiB, or its blocks do not hold together.
        """
        reader = _BlockReader(_inflate(data))
        data_version = DataVersion.decode(reader.block())
        topics = [_read_topic(reader.block()) for _ in range(reader.number())]
        filter_servers = _FilterServers.decode(b'{"list":' + reader.block() + b"}")
        return cls(
            filter_server_list=filter_servers.servers,
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                data_version=data_version, topic_config_table={topic.topic_name: topic for topic in topics}
            ),
        )

    @classmethod
    def decode_registration(cls, data: bytes | None, *, compressed: bool, version: int) -> RegisterBrokerBody:
        """The body of a registration by a broker of `version`; no body registers an empty table.

        Raises:
            BodyInvalid: as `decode` and `decode_compressed`.
        """
        if data is None:
            return cls()
        if version < MQVersion.V3_0_11:
            return cls(topic_config_serialize_wrapper=TopicConfigSerializeWrapper.decode(data))
        return cls.decode_compressed(data) if compressed else cls.decode(data)


def topic_block(topic: TopicConfig) -> bytes:
    """A topic as the compressed form holds it."""
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} {topic.topic_filter_type}"
    ).encode("utf-8", "replace")


def compress_blocks(version: DataVersion, topics: Sequence[bytes], filter_servers: Sequence[str] = ()) -> bytes:
    """The compressed form made of its topics' blocks; any thread may do it."""
    deflater = zlib.compressobj(_COMPRESS_LEVEL)
    head = version.encode()
    found = [deflater.compress(_SIZE.pack(len(head)) + head + _SIZE.pack(len(topics)))]
    found += [deflater.compress(_SIZE.pack(len(block)) + block) for block in topics]
    tail = dumps(filter_servers)
    found.append(deflater.compress(_SIZE.pack(len(tail)) + tail))
    return b"".join(found) + deflater.flush()


@body
class _FilterServers(Body):
    servers: list[str] = wire("list", factory=list)


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, INFLATED_SIZE_MAX + 1)
    except zlib.error as exc:
        raise BodyInvalid(f"registration of {len(data)} bytes is no zlib stream: {exc}") from exc
    if len(inflated) > INFLATED_SIZE_MAX or not inflater.eof:
        raise BodyInvalid(f"registration of {len(data)} bytes is cut short or inflates beyond {INFLATED_SIZE_MAX}")
    return inflated


class _BlockReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        try:
            (number,) = _SIZE.unpack_from(self._data, self._position)
        except struct.error:
            raise BodyInvalid(f"registration ends at {self._position} inside a size") from None
        self._position += _SIZE.size
        return int(number)

    def block(self) -> bytes:
        size = self.number()
        if not 0 <= size <= len(self._data) - self._position:
            raise BodyInvalid(f"block of {size} bytes at {self._position}, the registration has {len(self._data)}")
        self._position += size
        return self._data[self._position - size : self._position]


def _read_topic(block: bytes) -> TopicConfig:
    fields = block.decode("utf-8", "replace").split(" ")
    if len(fields) != 5 or fields[4] not in TopicFilterType.__members__:
        raise BodyInvalid(f"not a topic of a registration: {block[:200]!r}")
    return TopicConfig(
        topic_name=fields[0],
        read_queue_nums=read_int32(fields[1]),
        write_queue_nums=read_int32(fields[2]),
        perm=read_int32(fields[3]),
        topic_filter_type=TopicFilterType[fields[4]],
    )
