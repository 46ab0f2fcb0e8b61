"""What is signed, and which signatures a server accepts."""

from __future__ import annotations

import pytest

from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.signature import Credentials, is_signed, sign, signature_of, signed_content

SECRET = "12345678"
ACCOUNT = Credentials("rocketmq2", SECRET)


def request(body: bytes | None = b"hello", **fields: str) -> RemotingCommand:
    return RemotingCommand.request(10, body=body, ext_fields=fields)


def signed_without(*names: str, **fields: str) -> RemotingCommand:
    """Signed as by a client that leaves out these fields."""
    command = request(**fields, AccessKey="rocketmq2")
    content = signed_content(command.ext_fields or {}, command.body, names)
    command.add_ext_field("Signature", signature_of(content, SECRET))
    return command


def test_vectors() -> None:
    """Holds: trap, contents of a signature."""
    command = request(topic="TopicTest", queueId="3", b="x", Zed="1")
    for _ in range(2):
        sign(command, ACCOUNT)
        assert command.ext_field("Signature") == "mGreBenImQ1hG5IskS5IPNL8rzM="
    content = signed_content({"topic": "TopicTest", "AccessKey": "RocketMQ"}, b"hello")
    assert content == b"RocketMQTopicTesthello"
    assert signature_of(content, SECRET) == "IlhJmDi56c1+sdRGdQLyYHpYz4g="


@pytest.mark.parametrize("serialize_type", SerializeType)
@pytest.mark.parametrize("fields", [{}, {"topic": "T", "empty": ""}, {"\U0001f600": "4", "￿": "3", "Ä": "ö", "z": "1"}])
@pytest.mark.parametrize("body", [None, b"", b"\0\xff" * 700])
def test_what_arrives_is_what_was_signed(
    serialize_type: SerializeType, fields: dict[str, str], body: bytes | None
) -> None:
    """Holds: trap, signatures at the broker."""
    command = request(body, **fields)
    command.serialize_type = serialize_type
    sign(command, Credentials("rocketmq2", SECRET, "token"))
    arrived = RemotingCommand.decode(command.encode())
    assert is_signed(arrived, SECRET)
    assert not is_signed(arrived, SECRET + "9")
    arrived.body = (arrived.body or b"") + b"x"
    assert not is_signed(arrived, SECRET)


def test_names_are_ordered_by_utf_16_units() -> None:
    """An emoji is two units that begin with D83D, which come before U+FFFF."""
    assert signed_content({"￿": "2", "\U0001f600": "1", "a": "0"}, None) == b"012"


@pytest.mark.parametrize(
    "left_out", [(), ("_UNIQUE_KEY_QUERY",), ("SecurityToken",), ("_UNIQUE_KEY_QUERY", "SecurityToken")]
)
def test_fields_that_some_clients_do_not_sign(left_out: tuple[str, ...]) -> None:
    fields = {"_UNIQUE_KEY_QUERY": "true", "SecurityToken": "t", "topic": "T"}
    assert is_signed(signed_without(*left_out, **fields), SECRET)
    assert not is_signed(signed_without("topic", *left_out, **fields), SECRET)


@pytest.mark.parametrize("signature", [None, "", "x", "ä", "\ud800", "=" * 100_000])
def test_signatures_that_are_none(signature: str | None) -> None:
    command = request(topic="T")
    if signature is not None:
        command.add_ext_field("Signature", signature)
    assert not is_signed(command, SECRET)
    command.ext_fields = None
    assert not is_signed(command, SECRET)


def test_secrets_are_not_shown() -> None:
    assert "12345678" not in repr(Credentials("rocketmq2", "12345678", "token-x"))
    assert "token-x" not in repr(Credentials("rocketmq2", "12345678", "token-x"))
