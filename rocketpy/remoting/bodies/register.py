"""REGISTER_BROKER (103): a broker's topics, plain or compressed.

Compressed, it is a zlib stream of, big-endian: size and JSON of the DataVersion; number of topics; per topic size and
``name readQueueNums writeQueueNums perm topicFilterType``; size and JSON of the filter server list. The system flag
and the order flag of topics get lost on the way.

Such a stream declares no size and may grow a thousandfold, so it is inflated piece by piece within bounds: of
the total, and beyond the first megabyte of the ratio. Names and settings of topics, which are repeated, shrink to a
twentieth or a fortieth.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator, Sequence

from rocketpy.codes import MQVersion
from rocketpy.errors import BodyInvalid

from ..fastjson import dumps
from ..json_stream import JsonStream, chunks_of
from .schema import Body, body, read_int32, wire
from .topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicFilterType

_SIZE = struct.Struct(">i")
_COMPRESS_LEVEL = 9
TOPICS_MAX = 500_000  # of one registration; more come in parts
TOPICS_PER_STEP = 200
SMALL_BYTES = 16_384  # up to here a body is read in one step, and leniently
BLOCK_BYTES_MAX = SMALL_BYTES
INPUT_BYTES = 16_384
PIECE_BYTES = 65_536
RATIO_MAX = 100
FREE_BYTES = 1024 * 1024  # up to here any ratio will do
INFLATED_BYTES_MAX = 64 * 1024 * 1024


@body
class RegisterBrokerBody(Body):
    """The topics of a broker with their version, and its filter servers (it has none since 4.x)."""

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
    def reading(
        cls, data: bytes | None, *, compressed: bool, version: int
    ) -> Generator[None, None, RegisterBrokerBody]:
        """Read the body of a registration by a broker of `version`, in steps; no body registers an empty table.

        Yields after each TOPICS_PER_STEP topics, returns the body.

        Raises:
            BodyInvalid: no zlib stream, larger than INFLATED_BYTES_MAX or than the ratio allows, or its blocks do not
                hold together; no JSON, or a member is not of its type. What is not quite JSON is read as far as it is
                small: a large one takes too long.
        """
        if data is None:
            return cls()
        if version < MQVersion.V3_0_11:
            if len(data) <= SMALL_BYTES:
                return cls(topic_config_serialize_wrapper=TopicConfigSerializeWrapper.decode(data))
            return cls(topic_config_serialize_wrapper=(yield from _reading_wrapper(JsonStream(chunks_of(data)))))
        if compressed:
            return (yield from _reading_compressed(data))
        if len(data) <= SMALL_BYTES:
            return cls.decode(data)
        return (yield from _reading_json(data))


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


def _reading_json(data: bytes) -> Generator[None, None, RegisterBrokerBody]:
    found = RegisterBrokerBody()
    stream = JsonStream(chunks_of(data))
    for member in stream.members():
        if member == "topicConfigSerializeWrapper":
            found.topic_config_serialize_wrapper = yield from _reading_wrapper(stream)
        elif member == "filterServerList":
            found.filter_server_list = _FilterServers.from_json({"list": stream.value()}).servers
        else:
            stream.value()
        yield
    stream.end()
    return found


def _reading_wrapper(stream: JsonStream) -> Generator[None, None, TopicConfigSerializeWrapper]:
    found = TopicConfigSerializeWrapper()
    for member in stream.members():
        if member == "topicConfigTable":
            for number, name in enumerate(stream.members(), 1):
                _check_number(number)
                value = stream.value()
                if value is not None:
                    found.topic_config_table[name] = TopicConfig.from_json(value)
                if number % TOPICS_PER_STEP == 0:
                    yield
        elif member == "dataVersion":
            value = stream.value()
            found.data_version = DataVersion() if value is None else DataVersion.from_json(value)
        else:
            stream.value()
        yield
    return found


def _reading_compressed(data: bytes) -> Generator[None, None, RegisterBrokerBody]:
    reader = _BlockReader(inflated(data))
    data_version = DataVersion.decode(reader.block())
    topics: dict[str, TopicConfig] = {}
    topic_count = reader.number()
    _check_number(topic_count)
    for number in range(topic_count):
        topic = _read_topic(reader.block())
        topics[topic.topic_name] = topic
        if number % TOPICS_PER_STEP == 0:
            yield
    filter_servers = _FilterServers.decode(b'{"list":' + reader.block() + b"}")
    for _ in reader.rest():
        yield
    return RegisterBrokerBody(
        filter_server_list=filter_servers.servers,
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=data_version, topic_config_table=topics
        ),
    )


def _check_number(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise BodyInvalid(f"a registration of at least {topics} topics, at most {TOPICS_MAX} are allowed at once")


def inflated(data: bytes, *, bytes_max: int = INFLATED_BYTES_MAX) -> Iterator[bytes]:
    """The pieces of a zlib stream, of at most PIECE_BYTES each.

    Raises:
        BodyInvalid: it is damaged or cut short, or larger than `bytes_max` or than the ratio allows.
    """
    allowed = min(bytes_max, max(FREE_BYTES, RATIO_MAX * len(data)))
    inflater = zlib.decompressobj()
    size = 0
    for position in range(0, len(data), INPUT_BYTES):
        rest = data[position : position + INPUT_BYTES]
        while not inflater.eof:
            try:
                piece = inflater.decompress(rest, PIECE_BYTES)
            except zlib.error as exc:
                raise BodyInvalid(f"body of {len(data)} bytes is not a zlib stream: {exc}") from exc
            rest = inflater.unconsumed_tail
            if not piece:
                break
            size += len(piece)
            if size > allowed:
                raise BodyInvalid(f"compressed body of {len(data)} bytes inflates to more than {allowed} bytes")
            yield piece
    if not inflater.eof:
        raise BodyInvalid(f"compressed body of {len(data)} bytes is cut short")


class _BlockReader:
    """Sizes and blocks out of the pieces of a stream; holds little more than one block."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = bytearray()
        self._position = 0

    def number(self) -> int:
        return int(_SIZE.unpack(self._take(_SIZE.size))[0])

    def block(self) -> bytes:
        size = self.number()
        if not 0 <= size <= BLOCK_BYTES_MAX:
            raise BodyInvalid(f"block of {size} bytes in a registration, at most {BLOCK_BYTES_MAX} are allowed")
        return self._take(size)

    def rest(self) -> Iterator[bytes]:
        """Return the rest of the stream. Its content has no meaning, but only its end shows that the stream is
        whole."""
        return self._pieces

    def _take(self, size: int) -> bytes:
        if len(self._held) - self._position < size:
            del self._held[: self._position]
            self._position = 0
            while len(self._held) < size:
                piece = next(self._pieces, None)
                if piece is None:
                    raise BodyInvalid(f"registration ends inside a block: {size} bytes wanted, {len(self._held)} left")
                self._held += piece
        self._position += size
        return bytes(self._held[self._position - size : self._position])


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
