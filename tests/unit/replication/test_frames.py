"""The JSON frames of a handshake: what is read of them, and what is not."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.codes import REPLICATION_VERSION, REPLICATION_VERSION_LOWEST
from rocketpy.native.core import lib
from rocketpy.replication.frames import MAGIC, Fields, FrameInvalid, encode, printable
from tests.support import own_frames


def test_the_bytes_of_a_frame() -> None:
    assert encode(lib.RP_HA_TYPE_REFUSE, {"a": 1}) == bytes.fromhex("00000008 04") + b'{"a":1}'
    assert MAGIC == own_frames.MAGIC and MAGIC[7] == REPLICATION_VERSION_LOWEST == lib.RP_HA_VERSION_LOWEST
    assert lib.RP_HA_VERSION == REPLICATION_VERSION


def test_fields_of_every_kind() -> None:
    fields = Fields(b'{"n": 5, "t": "x", "p": {"q": 6}, "z": null}')
    part = fields.part("p")
    assert (fields.number("n"), fields.text("t")) == (5, "x") and part is not None and part.number("q") == 6
    assert fields.part("z") is None and fields.is_null("z") and not fields.is_null("n") and not fields.is_null("absent")


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b"5", b"\xff", b"{" * 1000, b"[" * 65_000])
def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(FrameInvalid):
        Fields(body)


@pytest.mark.parametrize("value", [b"true", b"-1", b"1.0", b'"1"', b"null", b"9223372036854775808", b"9" * 4000])
def test_what_is_no_number(value: bytes) -> None:
    with pytest.raises(FrameInvalid):
        Fields(b'{"n":' + value + b"}").number("n")


def test_what_is_neither_text_nor_object() -> None:
    fields = Fields(b'{"n": 5}')
    for read in (fields.text, fields.part):
        for name in ("n", "absent"):
            with pytest.raises(FrameInvalid):
                read(name)


def test_a_text_of_the_other_side_is_one_short_line() -> None:
    assert printable("a\nb\x1b[31m") == "a?b?[31m" and len(printable("x" * 10_000)) == 500
