"""Framing: fed whole, byte by byte and with trailing bytes; limits and contradictions. Rules of both header forms."""

import random
import tracemalloc

import pytest

from rocketpy.codes import LanguageCode
from rocketpy.errors import FrameTooLarge, HeaderInvalid, LocalProtocolError
from rocketpy.remoting.frame import (
    FRAME_SIZE_MAX,
    PREFIX_SIZE,
    Frame,
    FrameCutter,
    SerializeType,
    encode_frame,
    format_bool,
    frame_sizes,
    language_or_none,
    parse_bool,
)
from tests.support.cases import cases

FRAMES = [
    Frame(SerializeType.JSON, b"{}", b"body"),
    Frame(SerializeType.ROCKETMQ, b"x" * 300, None),
    Frame(SerializeType.JSON, b"", None),
]
STREAM = b"".join(encode_frame(frame.serialize_type, frame.header, frame.body) for frame in FRAMES)


def drain(cutter: FrameCutter) -> list[Frame]:
    frames = []
    while (frame := cutter.next_frame()) is not None:
        frames.append(frame)
    return frames


def test_whole_stream_with_trailing_bytes() -> None:
    """Holds: network, frames and both serialisations of headers."""
    cutter = FrameCutter()
    cutter.feed(STREAM + STREAM[:11])
    assert drain(cutter) == FRAMES
    assert cutter.buffered_size == 11
    cutter.feed(STREAM[11:])
    assert drain(cutter) == FRAMES
    assert cutter.buffered_size == 0


def test_byte_by_byte() -> None:
    cutter = FrameCutter()
    frames = []
    for position in range(len(STREAM)):
        cutter.feed(STREAM[position : position + 1])
        frames += drain(cutter)
    assert frames == FRAMES


LARGE = [Frame(SerializeType.JSON, b"h" * 200, b"%d" % size * size or None) for size in (0, 5, 9_000, 150_000, 70_000)]
CUTS = (1, 3, 100, 300, 4_095, 4_096, 20_000, 262_144)  # bytes of one read


@pytest.mark.parametrize("rest", [0, 3, 10])
def test_what_was_cut_is_not_kept(rest: int) -> None:
    """Fault: Three bytes of a next frame kept all of the read that they came with, beyond every bound of memory."""
    cutter = FrameCutter()
    image = encode_frame(SerializeType.JSON, b"{}", bytes(60_000))
    tracemalloc.start()
    cutter.feed(image + image[:rest])
    assert len(drain(cutter)) == 1
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cutter.buffered_size == rest
    assert held < 10_000


@cases("seed", range(60))
def test_frames_in_parts_of_any_size(seed: int) -> None:
    """The reader joins the parts of large frames, and takes over none of the memory that it is given."""
    chance = random.Random(seed)
    sent = chance.choices(LARGE, k=8)
    stream = b"".join(encode_frame(frame.serialize_type, frame.header, frame.body) for frame in sent)
    cutter, frames, at = FrameCutter(), [], 0
    memory = bytearray(max(CUTS))
    while at < len(stream):
        part = stream[at : at + chance.choice(CUTS)]
        memory[: len(part)] = part
        cutter.feed(memoryview(memory)[: len(part)])
        memory[: len(part)] = bytes(len(part))
        at += len(part)
        if chance.random() < 0.3:
            continue  # more comes before anybody asks
        frames += drain(cutter)
        taken = sum(8 + len(frame.header) + len(frame.body or b"") for frame in frames)
        assert cutter.buffered_size == at - taken
    assert frames + drain(cutter) == sent


def test_a_frame_in_single_bytes_takes_no_more_memory_than_it_has() -> None:
    count = 100_000
    cutter = FrameCutter()
    cutter.feed(encode_frame(SerializeType.JSON, b"", bytes(count))[:50])
    tracemalloc.start()
    for _ in range(count // 2):
        cutter.feed(b"x")
        assert cutter.next_frame() is None
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cutter.buffered_size == 50 + count // 2
    assert held < count


@pytest.mark.parametrize(
    "prefix", [b"\xff\xff\xff\xff", b"GET ", b"\x16\x03\x01\x02", (FRAME_SIZE_MAX - 3).to_bytes(4, "big")]
)
def test_length_beyond_the_limit_is_known_after_four_bytes(prefix: bytes) -> None:
    cutter = FrameCutter()
    cutter.feed(prefix[:3])
    assert cutter.next_frame() is None
    cutter.feed(prefix[3:])
    with pytest.raises(FrameTooLarge):
        cutter.next_frame()


def test_largest_frame_is_accepted() -> None:
    header_and_body = FRAME_SIZE_MAX - 8
    image = encode_frame(SerializeType.JSON, b"{}", bytes(header_and_body - 2))
    assert len(image) == FRAME_SIZE_MAX
    cutter = FrameCutter()
    cutter.feed(image)
    assert len(drain(cutter)) == 1
    with pytest.raises(LocalProtocolError):
        encode_frame(SerializeType.JSON, b"{}", bytes(header_and_body - 1))


@pytest.mark.parametrize(
    "image", ["00000000", "00000003000000", "0000000400000001", "0000000402000000", "00000004ff000000"]
)
def test_contradictions_are_refused(image: str) -> None:
    cutter = FrameCutter()
    cutter.feed(bytes.fromhex(image))
    with pytest.raises(HeaderInvalid):
        cutter.next_frame()


def test_booleans_and_languages() -> None:
    assert parse_bool("True") and not parse_bool("1")
    assert (format_bool(True), format_bool(False)) == ("true", "false")
    assert language_or_none(9) is LanguageCode.GO and language_or_none(99) is None


@pytest.mark.parametrize("frame", FRAMES)
def test_the_first_bytes_tell_the_sizes(frame: Frame) -> None:
    image = encode_frame(frame.serialize_type, frame.header, frame.body)
    expected = (frame.serialize_type, len(frame.header), len(frame.body or b""))
    assert frame_sizes(image[:PREFIX_SIZE]) == expected


@pytest.mark.parametrize(
    ("prefix", "error"),
    [
        ("01000001 00000000", FrameTooLarge),
        ("ffffffff 00000000", FrameTooLarge),
        ("00000003 00000000", HeaderInvalid),
        ("00000008 00000005", HeaderInvalid),
        ("00000008 02000000", HeaderInvalid),
    ],
)
def test_first_bytes_of_no_frame(prefix: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        frame_sizes(bytes.fromhex(prefix))


@pytest.mark.parametrize(
    ("first", "name"),
    [(b"\x16\x03\x01\x02", "a TLS handshake"), (b"HTTP", "an HTTP response"), (b"GET ", "an HTTP request")],
)
def test_another_protocol_is_named(first: bytes, name: str) -> None:
    with pytest.raises(FrameTooLarge, match=f"; these bytes begin {name}$"):
        frame_sizes(first + bytes(4))
