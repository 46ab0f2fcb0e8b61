"""Images of the log with records of every kind, for tests of what reads them."""

from __future__ import annotations

import random
import zlib

import attrs

from rocketpy.message.record import encode_blank
from tests.support.records import Record

BORN_MS = 1_700_000_000_000
V4, V6, MAPPED = ("10.0.0.1", 10911), ("2001:db8::7", 65535), ("::", 0)
PROPERTIES = (
    b"",
    b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010A0B0C",
    b"TAGS\x01TagB\x02",
    b"a\x011\x02a\x012\x02\x01nothing\x02b\x01\x02TAGS\x01\xc3\x28\x02c\x01x\x01y",
    "größe\x01größer\x02TAGS\x01日本".encode(),
    b"\x02".join(b"n%d\x01v%d" % (i % 37, i) for i in range(90)),
)
INNER = "a whole record as a body"


@attrs.frozen
class Image:
    """Bytes of the log from `start` on, and where its records begin."""

    data: bytes
    start: int
    records: tuple[int, ...]  # in `data`


def varied_record(rng: random.Random, number: int) -> Record:
    """A record whose fields have any legal size and family; every fifth body is compressed, some hold records."""
    body, sys_flag = rng.randbytes(rng.choice((0, 1, 17, 400))), 0
    if number % 5 == 0:
        body, sys_flag = zlib.compress(b"text " * rng.randrange(1, 500)), 0x1 | 0x300
    elif number % 7 == 0:
        body = record("Inner", b"deep").encode(phy_offset=rng.randrange(1 << 40), queue_offset=1) * 2
    sys_flag |= rng.choice((0, 0, 4, 8, 0xC))
    return Record(
        topic=rng.choice(("T", "TopicTest", "t" * 127, "RMQ_SYS_TRANS_HALF_TOPIC")),
        body=body,
        properties=rng.choice(PROPERTIES),
        queue_id=rng.randrange(4),
        flag=rng.choice((0, -1, 7)),
        sys_flag=sys_flag,
        reconsume_times=rng.randrange(17),
        prepared_transaction_offset=rng.choice((0, -1, 1 << 40)),
        born_timestamp_ms=rng.choice((BORN_MS, 0, -1, -(1 << 62), (1 << 63) - 1, 253_402_300_799_999)),
        born_host=rng.choice((V4, V6, MAPPED)),
        store_timestamp_ms=BORN_MS + number,
        store_host=rng.choice((V4, V6)),
    )


def record(topic: str = "TopicTest", body: bytes = b"hello", **fields: object) -> Record:
    known: dict[str, object] = {
        "born_timestamp_ms": BORN_MS,
        "born_host": V4,
        "store_timestamp_ms": BORN_MS,
        "store_host": V4,
    }
    return Record(topic=topic, body=body, **{**known, **fields})  # type: ignore[arg-type]


def image_of(records: list[Record], start: int = 0, *, file_size: int | None = None) -> Image:
    """The records one after the other; queue offsets count on. With `file_size`: padded, or zeros if it is too small
    for a blank to be written by a broker."""
    pieces, places, position = [], [], 0
    offsets: dict[tuple[str, int], int] = {}
    for item in records:
        queue = (item.topic, item.queue_id)
        offsets[queue] = offsets.get(queue, -1) + 1
        pieces.append(item.encode(phy_offset=start + position, queue_offset=offsets[queue]))
        places.append(position)
        position += len(pieces[-1])
    if file_size is not None:
        pieces.append(encode_blank(file_size - position).ljust(file_size - position, b"\x00"))
    return Image(b"".join(pieces), start, tuple(places))


def varied_image(seed: int, count: int, start: int = 0) -> Image:
    rng = random.Random(seed)
    return image_of([varied_record(rng, number) for number in range(count)], start)
