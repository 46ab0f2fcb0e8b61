"""Both message ids."""

from datetime import datetime

import pytest

from rocketpy.errors import MessageInvalid
from rocketpy.message.message_id import (
    OffsetMessageId,
    UniqueIdGenerator,
    decode_offset_message_id,
    encode_offset_message_id,
)
from rocketpy.message.numbers import PhyOffset


@pytest.mark.parametrize(
    ("host", "offset", "text"),
    [
        (("127.0.0.1", 31911), 1321, "7F00000100007CA70000000000000529"),
        (("10.0.0.1", 10911), 1073741824, "0A00000100002A9F0000000040000000"),
        (("2001:db8::2", 10911), 1073741824, "20010DB800000000000000000000000200002A9F0000000040000000"),
    ],
)
def test_offset_message_id(host: tuple[str, int], offset: int, text: str) -> None:
    """Holds: query, a message by its id."""
    assert encode_offset_message_id(host, offset) == text
    assert decode_offset_message_id(text) == OffsetMessageId(host, PhyOffset(offset))
    assert decode_offset_message_id(text.lower()).phy_offset == offset


@pytest.mark.parametrize("text", ["", "0" * 31, "Z" * 32, "7F 000001 0000 7CA7 000000000000 0", "0" * 33])
def test_what_is_no_offset_message_id(text: str) -> None:
    with pytest.raises(MessageInvalid):
        decode_offset_message_id(text)


def test_unique_ids_have_the_layout_of_java() -> None:
    """Holds: query, parts of a message id."""
    start = datetime(2026, 11, 1).timestamp()
    ids = UniqueIdGenerator("192.0.2.1", 0x12345, 0xCAFEBABE)
    assert ids.next_id(start + 1.5) == "C0000201" + "2345" + "CAFEBABE" + f"{1500:08X}" + "0000"
    assert ids.next_id(start + 1.5).endswith("0001")
    assert len(UniqueIdGenerator("2001:db8::1", 1, 2).next_id(start)) == 56


def test_unique_id_time_starts_again_each_month() -> None:
    ids = UniqueIdGenerator("192.0.2.1", 1, 0)
    before, after = datetime(2026, 12, 31, 23, 59, 59).timestamp(), datetime(2027, 1, 1, 0, 0, 1).timestamp()
    assert ids.next_id(before)[20:28] == f"{(31 * 86400 - 1) * 1000:08X}"
    assert ids.next_id(after)[20:28] == f"{1000:08X}"
    assert ids.next_id(before)[20:28] == f"{(31 * 86400 - 1) * 1000:08X}"


def test_counter_wraps() -> None:
    ids = UniqueIdGenerator("192.0.2.1", 1, 0)
    now = datetime(2026, 5, 5).timestamp()
    made = [ids.next_id(now) for _ in range(65537)]
    assert len(set(made)) == 65536 and made[0] == made[65536]
    assert [made[number][-4:] for number in (1, 0x12B, 65535)] == ["0001", "012B", "FFFF"]


def test_each_id_has_its_own_millisecond_also_when_the_clock_is_set_back() -> None:
    ids = UniqueIdGenerator("192.0.2.1", 1, 0)
    start = datetime(2026, 5, 1).timestamp()
    moments = [5.0004, 5.0009, 5.0011, 5.0002, 4.9, 5.0004, 700.0]
    expected = [5000, 5000, 5001, 5000, 4900, 5000, 700_000]
    assert [int(ids.next_id(start + moment)[20:28], 16) for moment in moments] == expected
