"""RemotingCommand in both serialisations, against bytes of a real broker."""

import pytest

from rocketpy.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.errors import HeaderInvalid, LocalProtocolError
from rocketpy.remoting.command import FLAG_RESPONSE, RemotingCommand
from rocketpy.remoting.frame import SerializeType

GET_MAX_OFFSET_REQUEST = bytes.fromhex(
    "00000034 01000030 001e 00 0199 0000004d 00000000 00000000 0000001b"
    "0005 746f706963 00000002 4a54 0007 71756575654964 00000001 30"
)
GET_MAX_OFFSET_RESPONSE_HEADER = bytes.fromhex(
    "0000 00 0199 0000004d 00000001 00000000 0000000d 0006 6f6666736574 00000001 33"
)
ROUTE_REQUEST_HEADER = (
    b'{"code":105,"extFields":{"topic":"JT"},"flag":0,"language":"JAVA","opaque":2,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    return (
        (4 + len(header) + len(body)).to_bytes(4, "big")
        + (serialize_type << 24 | len(header)).to_bytes(4, "big")
        + header
        + body
    )


def test_rocketmq_request_is_read_and_written_as_java_does() -> None:
    command = RemotingCommand.decode(GET_MAX_OFFSET_REQUEST)
    assert command == RemotingCommand(
        code=RequestCode.GET_MAX_OFFSET,
        opaque=77,
        language=LanguageCode.JAVA,
        version=409,
        ext_fields={"topic": "JT", "queueId": "0"},
        serialize_type=SerializeType.ROCKETMQ,
    )
    assert command.encode() == GET_MAX_OFFSET_REQUEST


def test_rocketmq_response_is_read_and_written_as_java_does() -> None:
    image = frame(GET_MAX_OFFSET_RESPONSE_HEADER, serialize_type=1)
    command = RemotingCommand.decode(image)
    assert command.is_response and command.code == 0 and command.ext_fields == {"offset": "3"}
    assert command.encode() == image


def test_json_request_is_read_and_written_as_java_does() -> None:
    """Holds: network, fields of a command."""
    command = RemotingCommand.decode(frame(ROUTE_REQUEST_HEADER))
    assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
    assert (command.opaque, command.language, command.ext_fields) == (2, LanguageCode.JAVA, {"topic": "JT"})
    assert command.remark is None and command.body is None
    assert command.encode() == frame(ROUTE_REQUEST_HEADER)


def test_json_send_response_of_a_real_broker() -> None:
    header = (
        b'{"code":0,"extFields":{"queueId":"0","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
        b'"msgId":"7F00000100007CA70000000000000000","queueOffset":"0"},"flag":1,"language":"JAVA","opaque":1,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    command = RemotingCommand.decode(frame(header))
    assert command.is_response and not command.is_oneway
    assert command.ext_field("msgId") == "7F00000100007CA70000000000000000"
    assert command.ext_field("absent") is None
    assert RemotingCommand.decode(command.encode()) == command


def test_response_answers_its_request() -> None:
    request = RemotingCommand.decode(GET_MAX_OFFSET_REQUEST)
    response = RemotingCommand.response(ResponseCode.TOPIC_NOT_EXIST, "no such topic").answering(request)
    assert (response.opaque, response.flag) == (77, FLAG_RESPONSE)
    assert response.serialize_type is SerializeType.ROCKETMQ
    assert response.name == "TOPIC_NOT_EXIST"


def test_names_for_logs() -> None:
    assert RemotingCommand.request(RequestCode.PULL_MESSAGE).name == "PULL_MESSAGE"
    assert RemotingCommand.request(200_050).name == "200050"
    assert RemotingCommand.oneway(RequestCode.HEART_BEAT).is_oneway


def test_absent_and_empty_ext_fields_stay_apart_in_json() -> None:
    assert b"extFields" not in RemotingCommand.request(34).encode()
    assert RemotingCommand.decode(RemotingCommand.request(34, ext_fields={}).encode()).ext_fields == {}


def test_body_of_no_bytes_is_no_body() -> None:
    assert RemotingCommand.decode(RemotingCommand.request(34, body=b"").encode()).body is None


def test_code_beyond_16_bits_exists_in_json_only() -> None:
    command = RemotingCommand.request(200_050)
    assert RemotingCommand.decode(command.encode()).code == 200_050
    command.serialize_type = SerializeType.ROCKETMQ
    with pytest.raises(LocalProtocolError):
        command.encode()


def test_adding_a_field_to_a_command_without_fields() -> None:
    command = RemotingCommand.request(34)
    command.add_ext_field("k", "v")
    assert command.ext_fields == {"k": "v"}


@pytest.mark.parametrize("image", [b"", b"\0\0\0\4", frame(b"{}")[:-1], frame(b"{}") + b"x"])
def test_decode_wants_exactly_one_frame(image: bytes) -> None:
    with pytest.raises(HeaderInvalid):
        RemotingCommand.decode(image)
