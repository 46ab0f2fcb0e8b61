"""docs/understand/wire-format.md: its examples are what the code reads and writes."""

from __future__ import annotations

import json

import attrs
import pytest

from rocketpy.codes import LanguageCode, RequestCode
from rocketpy.message.batch import BatchEntry, encode_batch
from rocketpy.remoting import fastjson
from rocketpy.remoting.bodies.route import BrokerData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FRAME_SIZE_MAX, PREFIX_SIZE, SerializeType
from rocketpy.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketpy.remoting.rocketmq_header import FIXED
from tests.support.doc_examples import Page

PAGE = Page.read("understand/wire-format.md")
REQUEST = RemotingCommand(
    code=RequestCode.GET_MAX_OFFSET,
    opaque=7,
    ext_fields={"topic": "TopicTest", "queueId": "3"},
    language=LanguageCode.JAVA,
    version=409,
)
ANSWER = attrs.evolve(REQUEST, code=0, flag=1, ext_fields={"offset": "5"}, language=LanguageCode.PYTHON)


def test_the_frame() -> None:
    """Holds: network, frames and both serialisations of headers."""
    assert PAGE.first_column("Frame", "at | size | field") == [0, 4, 5, 8, 8] and PREFIX_SIZE == 8
    assert f"{FRAME_SIZE_MAX - 4:,}".replace(",", " ") in PAGE.section("Frame")


def json_examples() -> list[bytes]:
    """Lines of the prefix in hexadecimal, then the header as text."""
    [block] = PAGE.blocks("JSON header")
    parts = [(line[: 2 * PREFIX_SIZE + 1], line[2 * PREFIX_SIZE + 2 :]) for line in block.splitlines()]
    return [bytes.fromhex(prefix) + header.encode() for prefix, header in parts]


@pytest.mark.parametrize(
    ("images", "serialize_type", "commands"),
    [
        (json_examples(), SerializeType.JSON, [REQUEST, ANSWER]),
        (PAGE.examples("ROCKETMQ header"), SerializeType.ROCKETMQ, [REQUEST]),
    ],
)
def test_the_headers(images: list[bytes], serialize_type: SerializeType, commands: list[RemotingCommand]) -> None:
    assert images == [attrs.evolve(command, serialize_type=serialize_type).encode() for command in commands]
    for image, command in zip(images, commands, strict=True):
        assert RemotingCommand.decode(image).ext_fields == command.ext_fields


def test_the_positions_of_the_rocketmq_header() -> None:
    assert PAGE.first_column("ROCKETMQ header", "at | size | field") == [0, 2, 3, 5, 9, 13, 17]
    assert FIXED.size == 17


def test_the_letters_of_a_send() -> None:
    header = SendMessageRequestHeader(
        producer_group="g",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000,
        flag=0,
        properties="TAGS\x01A",
    ).to_v2()
    command = attrs.evolve(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header), opaque=0)
    (example,) = PAGE.blocks("Fields")
    assert json.loads(command.encode()[PREFIX_SIZE:]) == json.loads(example)
    letters = [line[3] for line in PAGE.section("Fields").splitlines() if line.startswith("- `")]
    assert letters == list("abcdefghijklmn")
    assert isinstance(header, SendMessageRequestHeaderV2)


def test_the_batch() -> None:
    assert PAGE.examples("Bodies") == [encode_batch([BatchEntry(b"hello", b"TAGS\x01A"), BatchEntry(b"world", b"")])]


def test_the_dialect_of_fastjson() -> None:
    offsets, route = PAGE.blocks("Bodies")[1].splitlines()
    assert fastjson.dumps({"offsetTable": {"TopicTest@GroupA": {0: 12, 3: 7}}}).decode() == offsets
    assert fastjson.loads(offsets.encode()) == {"offsetTable": {"TopicTest@GroupA": {"0": 12, "3": 7}}}
    broker = BrokerData(broker_addrs={0: "10.0.0.1:10911"}, broker_name="broker-a", cluster="DefaultCluster")
    assert fastjson.dumps(broker).decode() == route
