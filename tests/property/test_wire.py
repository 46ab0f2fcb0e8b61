"""Round trips, truncations and arbitrary bytes on the wire formats; derandomised, so that a failure repeats."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.codes import LanguageCode
from rocketpy.errors import BodyInvalid, MessageInvalid, RecordCorrupt, RemoteProtocolError
from rocketpy.message.batch import BatchEntry, decode_batch, encode_batch
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import decode_properties, encode_properties, find_property, join_properties
from rocketpy.message.record import decode_record, decode_records, encode_record
from rocketpy.message.tags import string_hash
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.connection import Connection, RequestReceived, ResponseReceived
from rocketpy.remoting.fastjson import dumps, loads, loads_text
from rocketpy.remoting.frame import SerializeType
from tests.support.budget import budget

repeatable = settings(derandomize=True, deadline=None, max_examples=budget(25, 150), database=None)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
SOME_TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
SHORT = st.integers(-(1 << 15), (1 << 15) - 1)
LONG = st.integers(0, (1 << 63) - 1)
BODY = st.none() | st.binary(min_size=1, max_size=50)
HOST = st.tuples(
    st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).filter(lambda ip: ip.ipv4_mapped is None).map(str),
    st.integers(0, 65535),
)


def commands(serialize_type: SerializeType) -> st.SearchStrategy[RemotingCommand]:
    binary = serialize_type is SerializeType.ROCKETMQ
    text = SOME_TEXT if binary else TEXT  # an empty text is null in the binary form
    return st.builds(
        RemotingCommand,
        code=SHORT if binary else INT,
        opaque=INT,
        flag=st.sampled_from((0, 1, 2)),
        language=st.sampled_from(LanguageCode),
        version=SHORT if binary else INT,
        remark=st.none() | text,
        ext_fields=st.none() | st.dictionaries(text, text, min_size=1 if binary else 0, max_size=5),
        body=BODY,
        serialize_type=st.just(serialize_type),
    )


COMMANDS = commands(SerializeType.JSON) | commands(SerializeType.ROCKETMQ)


@repeatable
@given(COMMANDS)
def test_command_round_trip(command: RemotingCommand) -> None:
    assert RemotingCommand.decode(command.encode()) == command


@repeatable
@given(COMMANDS, st.data())
def test_truncated_command_is_no_command(command: RemotingCommand, data: st.DataObject) -> None:
    image = command.encode()
    connection: Connection[None] = Connection()
    connection.receive_data(image[: data.draw(st.integers(1, len(image) - 1))])
    assert connection.next_event() is None


@repeatable
@given(st.lists(COMMANDS, min_size=1, max_size=4), st.integers(1, 40))
def test_stream_in_pieces_gives_the_same_commands(sent: list[RemotingCommand], step: int) -> None:
    stream = b"".join(command.encode() for command in sent)
    connection: Connection[None] = Connection()
    received = []
    for position in range(0, len(stream), step):
        connection.receive_data(stream[position : position + step])
        while (event := connection.next_event()) is not None:
            assert isinstance(event, RequestReceived | ResponseReceived)
            received.append(event.command)
    requests = [command for command in sent if not command.is_response]
    assert received == requests
    assert connection.unmatched_count == len(sent) - len(requests)


@repeatable
@given(st.sampled_from((0, 1)), st.binary(max_size=80), st.binary(max_size=10))
def test_any_header_bytes_are_a_command_or_an_error_of_the_peer(kind: int, header: bytes, body: bytes) -> None:
    length = 4 + len(header) + len(body)
    image = length.to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big") + header + body
    try:
        command = RemotingCommand.decode(image)
    except RemoteProtocolError:
        return
    assert RemotingCommand.decode(command.encode()).code == command.code


@repeatable
@given(COMMANDS, st.data())
def test_damaged_command_never_escapes_as_anything_else(command: RemotingCommand, data: st.DataObject) -> None:
    image = bytearray(command.encode())
    for _ in range(3):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    connection: Connection[None] = Connection()
    connection.receive_data(image)
    try:
        while connection.next_event() is not None:
            pass
    except RemoteProtocolError:
        pass


@repeatable
@given(
    topic=st.text("abc%_-", max_size=127),
    queue_id=INT,
    flag=INT,
    sys_flag=st.sampled_from((0, 1, 4, 8, 0x301)),
    queue_offset=LONG,
    phy_offset=LONG,
    born_timestamp_ms=LONG,
    store_timestamp_ms=LONG,
    born_host=HOST,
    store_host=HOST,
    reconsume_times=INT,
    prepared_transaction_offset=LONG,
    body=st.binary(max_size=60),
    properties=st.binary(max_size=60),
)
def test_record_round_trip(**fields: object) -> None:
    image = encode_record(**fields)  # type: ignore[arg-type]  # drawn by name
    record = decode_record(image, check_crc=True)
    assert record is not None and record.size == len(image)
    assert record.sys_flag & ~0x30 == fields.pop("sys_flag")
    for name, value in fields.items():
        assert getattr(record, name) == value
    assert [one.size for one in decode_records(image * 3)] == [len(image)] * 3
    with pytest.raises(RecordCorrupt):
        decode_record(image[:-1])


@repeatable
@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_corrupt(image: bytes) -> None:
    with contextlib.suppress(RecordCorrupt):
        list(decode_records(b"\x00\x00\x00\x70\xda\xa3\x20\xa7" + image, check_crc=True))


@repeatable
@given(st.lists(st.builds(BatchEntry, body=st.binary(max_size=20), properties=st.binary(max_size=20), flag=INT)))
def test_batch_round_trip(entries: list[BatchEntry]) -> None:
    assert decode_batch(encode_batch(entries)) == entries


@repeatable
@given(st.binary(max_size=120))
def test_any_bytes_are_a_batch_or_invalid(body: bytes) -> None:
    with contextlib.suppress(MessageInvalid):
        assert encode_batch(decode_batch(body)) is not None


PROPERTY = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1, max_size=9)


@repeatable
@given(st.dictionaries(PROPERTY, PROPERTY), st.dictionaries(PROPERTY, PROPERTY), st.booleans())
def test_properties_round_trip(first: dict[str, str], second: dict[str, str], trailing: bool) -> None:
    tail = "\x02" if trailing and first else ""
    one, other = (encode_properties(first) + tail).encode(), encode_properties(second).encode()
    joined = join_properties(one, other)
    assert decode_properties(joined.decode()) == first | second
    for name, value in (first | second).items():
        assert find_property(joined, name.encode()) == value.encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner.filter(lambda value: value is not None)),
    max_leaves=12,
)


@repeatable
@given(JSON)
def test_json_round_trip(value: object) -> None:
    assert loads(dumps(value)) == value


@repeatable
@given(st.dictionaries(st.builds(MessageQueue, TEXT, TEXT, INT), st.dictionaries(INT, LONG, max_size=3), max_size=4))
def test_maps_that_are_not_json_round_trip(table: dict[MessageQueue, dict[int, int]]) -> None:
    read = loads(dumps({"table": table}))
    assert isinstance(read, dict) and isinstance(read["table"], dict)
    found = [(loads_text(key), value) for key, value in read["table"].items()]
    assert found == [
        (
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic},
            {str(key): value for key, value in offsets.items()},
        )
        for queue, offsets in table.items()
    ]


@repeatable
@given(st.text("{}[]:,\"'\\u0d8a1e-+.NtrueL ", max_size=40))
def test_any_text_is_json_or_invalid(text: str) -> None:
    with contextlib.suppress(BodyInvalid):
        dumps(loads(text.encode()))


@repeatable
@given(TEXT)
def test_string_hash_is_that_of_its_utf16_units(text: str) -> None:
    """Holds: trap, the hash of a tag is Java's."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    assert (string_hash(text) - sum(unit * 31 ** (len(units) - 1 - i) for i, unit in enumerate(units))) % (1 << 32) == 0
    assert -(1 << 31) <= string_hash(text) < 1 << 31
