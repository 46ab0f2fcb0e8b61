"""Batch bodies against a captured one and against damage."""

import pytest

from rocketpy.errors import MessageInvalid
from rocketpy.message.batch import BatchEntry, decode_batch, encode_batch
from tests.support.cases import cases

BATCH = bytes.fromhex(
    "0000001f 00000000 00000000 00000001 00000002 6231 0007 54414753015431"
    "00000018 00000000 00000000 00000000 00000002 6232 0000"
)
ENTRIES = [BatchEntry(b"b1", b"TAGS\x01T1", 1), BatchEntry(b"b2", b"")]


def test_batch_is_encoded_as_java_does() -> None:
    assert encode_batch(ENTRIES) == BATCH
    assert decode_batch(BATCH) == ENTRIES
    assert decode_batch(b"") == []


def test_magic_and_crc_are_ignored() -> None:
    image = bytearray(BATCH)
    image[4:12] = b"\xff" * 8
    assert decode_batch(bytes(image)) == ENTRIES


@cases("size", [size for size in range(1, len(BATCH)) if size != 31])
def test_truncated_batch_is_refused(size: int) -> None:
    with pytest.raises(MessageInvalid):
        decode_batch(BATCH[:size])


@pytest.mark.parametrize("offset", [0, 3, 16, 19, 22, 23])
def test_contradicting_lengths_are_refused(offset: int) -> None:
    image = bytearray(BATCH)
    image[offset] ^= 0x81
    with pytest.raises(MessageInvalid):
        decode_batch(bytes(image))


def test_properties_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MessageInvalid, match="32768"):
        encode_batch([BatchEntry(b"", b"p" * 32768)])
