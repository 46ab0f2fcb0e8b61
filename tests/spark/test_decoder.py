"""The compiled core and the codecs in Python against what was encoded and against each other: built, cut and damaged
images, all columns."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rocketpy.errors import CompressionError
from rocketpy.message.compression import decompress_body
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import decode_records, encode_blank
from rocketpy.native import Status
from rocketpy.spark.columns import COLUMNS, DIAGNOSTICS, parse_columns
from rocketpy.spark.decoder import Decoder, End, RowOrder, fault_at
from rocketpy.spark.native_rows import NativeRows
from rocketpy.spark.scan import Checks, Selection
from tests.support.log_images import BORN_MS, Image, image_of, record, varied_image, varied_record
from tests.support.python_rows import PythonRows

ALL = tuple(name for name in COLUMNS if name not in DIAGNOSTICS)
BOTH = pytest.mark.parametrize("make_rows", [NativeRows, PythonRows])


def decode(
    data: bytes, make_rows: Any = NativeRows, *, columns: tuple[str, ...] = ALL, start: int = 0, **how: Any
) -> tuple[list[dict[str, Any]], End]:
    place = {name: how.pop(name) for name in ("position", "stop") if name in how}
    decoder = Decoder(columns, constants={"brokerName": "broker-a"}, make_rows=make_rows, **how)
    rows: list[dict[str, Any]] = []
    batches = decoder.decode(data, start, **place)
    while True:
        try:
            batch = next(batches)
        except StopIteration as stop:
            return rows, stop.value
        batch.validate(full=True)
        assert batch.num_rows <= decoder.checks.rows_max
        rows += batch.cast(plain(batch.schema)).to_pylist()


def plain(schema: pa.Schema) -> pa.Schema:
    """Times as numbers: Python's datetime has no year 1 in every zone."""
    return pa.schema([pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in schema])


@BOTH
def test_every_field_is_the_one_that_was_stored(make_rows: Any) -> None:
    image = varied_image(1, 60)
    rows, end = decode(image.data, make_rows, checks=Checks(crc=True, place=True))
    stored = list(decode_records(image.data))
    assert end == End(Status.OK, len(image.data), 60)
    assert [row["physicalOffset"] for row in rows] == list(image.records)
    for row, item in zip(rows, stored, strict=True):
        properties = decode_properties(item.properties.decode("utf-8", "replace"))
        assert dict(row["properties"]) == properties
        assert (row["topic"], row["brokerName"], row["queueId"]) == (item.topic, "broker-a", item.queue_id)
        assert (row["queueOffset"], row["flag"], row["sysFlag"]) == (item.queue_offset, item.flag, item.sys_flag)
        assert row["body"] == decompress_body(item.body, item.sys_flag)[0]
        assert (row["tags"], row["keys"]) == (properties.get("TAGS"), properties.get("KEYS"))
        assert row["offsetMsgId"] == encode_offset_message_id(item.store_host, item.phy_offset)
        assert row["msgId"] == properties.get("UNIQ_KEY", row["offsetMsgId"])
        assert row["storeTimestamp"] == item.store_timestamp_ms * 1000
        assert (row["storeSize"], row["bodyCRC"]) == (item.size, item.body_crc)
        assert (row["reconsumeTimes"], row["preparedTransactionOffset"]) == (
            item.reconsume_times,
            item.prepared_transaction_offset,
        )


@BOTH
@pytest.mark.parametrize("rows_max", [7, 100])
def test_each_batch_is_in_the_order_that_was_asked_for(make_rows: Any, rows_max: int) -> None:
    """All columns follow the order, with inflated bodies and nulls."""
    records = [varied_record(random.Random(number), number) for number in range(60)]
    records += [record(body=zlib.compress(bytes([n]) * 3000), sys_flag=1, queue_id=n % 3) for n in range(40)]
    random.Random(3).shuffle(records)
    image = image_of(records)
    checks = Checks(rows_max=rows_max, bytes_max=50_000)
    asked = []

    def by_queue(batch: Any) -> Any:
        asked.append(batch.num_rows)
        return pc.sort_indices(batch["queueId"])

    in_log, _ = decode(image.data, make_rows, checks=checks)
    decoder = Decoder(ALL, checks=checks, constants={"brokerName": "broker-a"}, make_rows=make_rows)
    decoder.order = RowOrder(("queueId",), by_queue)
    batches = list(decoder.decode(image.data))
    found = [row for batch in batches for row in batch.cast(plain(batch.schema)).to_pylist()]
    expected = []
    for count in asked:
        part, in_log = in_log[:count], in_log[count:]
        expected += sorted(part, key=lambda row: row["queueId"])
    assert found == expected and len(found) == 100 and len(asked) > 2


@BOTH
def test_times_outside_of_the_years_1_to_9999_are_null(make_rows: Any) -> None:
    times = (-62_135_596_800_001, -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000, -(1 << 63))
    rows, _ = decode(image_of([record(born_timestamp_ms=time) for time in times]).data, make_rows)
    us = [None, -62_135_596_800_000_000, 253_402_300_799_999_000, None, None]
    assert [row["bornTimestamp"] for row in rows] == us


@pytest.mark.parametrize("seed", range(6))
def test_both_implementations_agree_on_damaged_images(seed: int) -> None:
    rng = random.Random(seed)
    image = varied_image(seed, 25)
    for _ in range(150):
        damaged = bytearray(image.data)
        for _ in range(rng.randrange(3)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        data = bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))])
        checks = Checks(crc=rng.random() < 0.5, place=rng.random() < 0.5, rows_max=rng.choice((1, 7, 4096)))
        condition = rng.choice(
            (None, "TAGS = 'TagA' OR c IS NOT NULL", "a > 1", "TAGS NOT IN ('TagA', 'x')", "n3 BETWEEN 1 AND 99")
        )
        selection = Selection(committed_only=rng.random() < 0.5, condition=condition)
        ours, theirs = (decode(data, rows, checks=checks, selection=selection) for rows in (NativeRows, PythonRows))
        assert ours == theirs, f"seed {seed}"


@BOTH
def test_a_condition_selects_by_the_properties_of_each_record(make_rows: Any) -> None:
    prices = [b"price\x01%d" % n for n in range(20)] + [b"", b"price\x01dear", b"other\x0117"]
    image = image_of([record(body=b"%d" % n, properties=properties) for n, properties in enumerate(prices)])
    selection = Selection(condition="price BETWEEN 5 AND 7 OR other = 17")
    rows, end = decode(image.data, make_rows, columns=("body",), selection=selection)
    assert [row["body"] for row in rows] == [b"5", b"6", b"7", b"22"]
    assert end == End(Status.OK, len(image.data), len(prices))


@BOTH
def test_a_flipped_bit_in_any_byte_is_seen_or_changes_one_field(make_rows: Any) -> None:
    """With CRC and place, a change goes unseen only in numbers, hosts, times, topic and properties."""
    image = image_of([record(body=b"0123456789", properties=b"TAGS\x01a"), record()])
    whole, _ = decode(image.data, make_rows)
    for at in range(image.records[1]):
        damaged = bytearray(image.data)
        damaged[at] ^= 0x80
        rows, end = decode(bytes(damaged), make_rows, checks=Checks(crc=True, place=True))
        if end.status is Status.OK:
            assert len(rows) == 2 and rows[1] == whole[1], at
            unprotected = 12 <= at < 28 or 36 <= at < 84 or 99 <= at < 108 or at >= 110  # offsets: record.py
            assert unprotected, f"damage at byte {at} was not seen"
        else:
            assert rows == [] and end.position == 0, at
            assert fault_at(bytes(damaged), 0, 0, Checks(crc=True, place=True)), at


@BOTH
@pytest.mark.parametrize("rows_max", [1, 2, 3, 50])
def test_every_split_gives_every_record_once(make_rows: Any, rows_max: int) -> None:
    """A split owns the records that start inside it, and reads past its end for the last one."""
    image = varied_image(3, 8)
    whole, _ = decode(image.data, make_rows)
    checks = Checks(place=True, rows_max=rows_max)
    for size in (*range(1, 40), 100, 333, 1000):
        pieces: list[dict[str, Any]] = []
        decoder = Decoder(("physicalOffset",), checks=checks, make_rows=make_rows)
        for begin in range(0, len(image.data), size):
            first = decoder.resync(image.data, 0, begin, begin + size)
            if first is not None:
                for batch in decoder.decode(image.data, position=first, stop=begin + size):
                    pieces += batch.to_pylist()
        assert [row["physicalOffset"] for row in pieces] == [row["physicalOffset"] for row in whole], size


@BOTH
@pytest.mark.parametrize("near", [1 << 16, 1 << 17])
def test_a_record_after_zeros_is_found(make_rows: Any, near: int) -> None:
    decoder = Decoder(("queueId",), make_rows=make_rows)
    for zeros in range(near - 8, near + 9):
        data = bytes(zeros) + image_of([record()], zeros).data
        for begin in (0, 1, 8):
            assert decoder.resync(data, 0, begin, len(data)) == zeros
            assert decoder.resync(data, 0, begin, zeros + 1) == zeros, "it begins in front of the end of the search"
            assert decoder.resync(data, 0, begin, zeros) is None


@BOTH
def test_a_stored_record_in_a_body_is_no_record(make_rows: Any) -> None:
    inner = record("Inner").encode(phy_offset=12345, queue_offset=0)
    image = image_of([record(body=inner), record(body=inner * 3), record()])
    decoder = Decoder(("queueId",), make_rows=make_rows)
    assert decoder.resync(image.data, 0, 1, len(image.data)) == image.records[1]


@BOTH
def test_the_end_of_a_file_is_told_from_damage(make_rows: Any) -> None:
    image = image_of([record()]).data
    ends = {
        b"": Status.OK,
        encode_blank(8): Status.END_OF_FILE,
        encode_blank(20) + bytes(12): Status.END_OF_FILE,
        bytes(100): Status.EMPTY,
        image[:50]: Status.INCOMPLETE,
        b"\x01": Status.INCOMPLETE,
        b"nonsense" * 20: Status.CORRUPT,
        image: Status.CORRUPT,  # not in its place
    }
    for tail, status in ends.items():
        rows, end = decode(image + tail, make_rows, checks=Checks(place=True))
        assert (len(rows), end) == (1, End(status, len(image), 1)), tail


@BOTH
def test_selection(make_rows: Any) -> None:
    records = [
        record("A", queue_id=0, properties=b"TAGS\x01x"),
        record("B", queue_id=1, properties=b"TAGS\x01y", store_timestamp_ms=BORN_MS + 1),
        record("AB", queue_id=2, store_timestamp_ms=BORN_MS + 2),
        record("B", queue_id=0, properties=b"TAGS\x01xx", sys_flag=0xC),
        record("RMQ_SYS_TRANS_OP_HALF_TOPIC"),
    ]
    image = image_of(records)

    def chosen(**selection: Any) -> list[int]:
        rows, _ = decode(image.data, make_rows, columns=("physicalOffset",), selection=Selection(**selection))
        return [image.records.index(row["physicalOffset"]) for row in rows]

    assert chosen() == [0, 1, 2, 3, 4]
    assert chosen(topics=frozenset({"B", "C", "A"})) == [0, 1, 3]
    assert chosen(queue_ids=frozenset({0, 2})) == [0, 2, 3, 4]
    assert chosen(tags=frozenset({"x", "y"})) == [0, 1]
    assert chosen(store_time_from_ms=BORN_MS + 1, store_time_to_ms=BORN_MS + 2) == [1]
    assert chosen(topics=frozenset({"B"}), queue_offset_from=0, queue_offset_to=1) == [1, 3]
    assert chosen(queue_offset_from=1) == chosen(queue_offset_to=0) == []
    assert chosen(committed_only=True) == [0, 1, 2]


@BOTH
def test_inflated_bodies_are_cut_into_batches(make_rows: Any) -> None:
    records = [record(body=zlib.compress(bytes([n]) * 3000), sys_flag=1) for n in range(20)]
    decoder = Decoder(("body",), checks=Checks(bytes_max=10_000), make_rows=make_rows)
    batches = list(decoder.decode(image_of(records).data))
    assert [len(body) for batch in batches for body in batch.column(0).to_pylist()] == [3000] * 20
    assert max(batch.num_rows for batch in batches) == 3
    stored = Decoder(("body",), checks=Checks(decompress=False), make_rows=make_rows)
    (batch,) = stored.decode(image_of(records).data)
    assert batch.column(0).to_pylist() == [item.body for item in records]


@BOTH
def test_inflated_bodies_take_the_memory_of_one_batch(make_rows: Any) -> None:
    """A few kilobytes of a sender may become gigabytes, if all bodies of a step are kept.
    Fault: The Spark source kept all inflated bodies of a step in the memory of an executor."""
    size = 1 << 20
    image = image_of([record(body=zlib.compress(bytes(size)), sys_flag=1) for _ in range(30)])
    decoder = Decoder(("body",), checks=Checks(bytes_max=size), make_rows=make_rows)
    tracemalloc.start()
    try:
        lengths = [batch.num_rows for batch in decoder.decode(image.data)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(lengths) == 30
    assert peak < 8 * size


@BOTH
def test_a_body_that_cannot_be_inflated_is_delivered_as_stored(
    make_rows: Any, caplog: pytest.LogCaptureFixture
) -> None:
    image = image_of([record(body=b"not compressed", sys_flag=1), record()])
    decoder = Decoder(("body",), make_rows=make_rows)
    (batch,) = decoder.decode(image.data)
    assert batch.column(0).to_pylist() == [b"not compressed", b"hello"]
    assert decoder.undecodable == 1 and "delivered as stored" in caplog.text
    with pytest.raises(CompressionError):
        decompress_body(b"not compressed", 1)


@BOTH
def test_properties_as_json(make_rows: Any) -> None:
    image = image_of([record(properties=b"a\x011\x02TAGS\x01x"), record()])
    rows, _ = decode(image.data, make_rows, columns=("properties",), json_properties=True)
    assert rows == [{"properties": '{"a": "1", "TAGS": "x"}'}, {"properties": "{}"}]


@BOTH
def test_a_property_with_thousands_of_names_is_read_once(make_rows: Any) -> None:
    properties = b"\x02".join(b"%d\x01%d" % (i % 3000, i) for i in range(4500))
    rows, _ = decode(image_of([record(properties=properties[:32767])]).data, make_rows, columns=("properties",))
    pairs = rows[0]["properties"]
    assert len(pairs) == len(dict(pairs))
    assert dict(pairs) == decode_properties(properties[:32767].decode())


@BOTH
def test_a_record_beyond_the_size_limit_is_damage(make_rows: Any) -> None:
    image = image_of([record(), record(body=bytes(1000))])
    checks = Checks(record_size_max=500)
    rows, end = decode(image.data, make_rows, checks=checks)
    assert (len(rows), end.status) == (1, Status.CORRUPT)
    assert "at most 500" in fault_at(image.data, 0, end.position, checks)


def test_images_keep_their_place_in_the_log() -> None:
    image = varied_image(9, 5, start=1 << 30)
    rows, end = decode(image.data, start=image.start, checks=Checks(place=True))
    assert [row["physicalOffset"] - image.start for row in rows] == list(image.records)
    assert end.status is Status.OK
    damaged = Image(image.data, 0, image.records)
    assert decode(damaged.data, start=damaged.start, checks=Checks(place=True))[1].status is Status.CORRUPT


def test_names_of_columns() -> None:
    assert parse_columns("min", diagnostics=False) == ("queueId", "queueOffset", "physicalOffset", "body")
    assert len(parse_columns("std", diagnostics=False)) == 11
    assert len(parse_columns("ALL", diagnostics=True)) == 21
    assert parse_columns("BODY, crcok", diagnostics=True) == ("body", "crcOk")
    for text, message in {
        "boddy": 'columns: "boddy" is no column; did you mean "body"?',
        "crcOk": 'columns: "crcOk" is no column',
        "body,body": 'columns: column "body" is named twice',
    }.items():
        with pytest.raises(Exception, match=message.replace("?", r"\?")):
            parse_columns(text, diagnostics=False)


def test_sources_without_the_compiled_core_say_what_is_missing() -> None:
    program = "import sys; sys.modules['rocketpy.native._rocketpy'] = None; import rocketpy.spark.topic_source"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("rocketpy.errors.NativeMissing: the compiled core is missing (") and "reinstall" in last
