"""`python -m bench.core_gain`: the gain of each part of the C core over plain Python, as ratios.

Both sides do the same work on the same items, in one thread, in turn. The Python side is the reader, writer or decoder
that rocketpy has, or the shortest code that writes the same bytes; zlib, struct and heapq are C as well. Counted is
CPU time of the thread. The C of most parts is called once per item through cffi, whose cost is counted, so ratios are
lower bounds. Ratios are kept, times are not: the speed of machines differs more.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import click

from rocketpy.native.core import ffi, lib
from rocketpy.remoting import rocketmq_header
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import SendMessageResponseHeader
from rocketpy.replication.frames import DATA, FRAME
from tests.support.fast_path_requests import send_v2
from tests.support.slave_rig import SlaveRig

from . import core_gain_store, report
from .core_gain_turn import (
    FILE_SIZE,
    POSITION,
    PROPERTIES,
    SIZE,
    Turn,
    fields_of,
    image_file,
    message,
    prepare_log,
    repeated,
    spent,
)

ROOT = Path(__file__).parent.parent
TURNS = 7
BAR = 1.5  # a part that gains less belongs to Python

# rp_traffic is called by no Python: this loop and the objects of the core become a library of their own.
TRAFFIC_C = """
#include "workers/shared/traffic.h"
__attribute__((visibility("default"))) int count_traffic(uint32_t times) {
    rp_traffic traffic;
    if (rp_traffic_init(&traffic)) return -1;
    for (uint32_t i = 0; i < times; i++) {
        rp_msg_traffic counts = {.messages = 1, .bytes = 1024, .requests = 1, .queue_id = (int32_t)(i % 8),
                                 .topic_size = 9};
        rp_traffic_add(&traffic, &counts, (const uint8_t *)"TopicTest", i);
    }
    rp_traffic_destroy(&traffic);
    return 0;
}
"""


@attrs.frozen
class Part:
    """A part of the core. `per`: how often its C runs."""

    name: str
    where: str
    per: str
    items: int
    turn: Callable[[Path, int], Turn]


# --- records and headers ----------------------------------------------------------------------------------------------

SEND_FIELDS = send_v2(
    "TopicTest", properties=PROPERTIES.decode(), j="0", k="false", l="16", m="false", n="b"
).ext_fields


def headers(encoded: bytes, parse: Any, read: Callable[[bytes], Any]) -> Callable[[Path, int], Turn]:
    def turn(_root: Path, items: int) -> Turn:
        data, parsed = ffi.from_buffer("uint8_t[]", encoded), ffi.new("rp_header *")
        assert parse(data, len(data), parsed) == lib.RP_OK
        c_ns = repeated(parse, data, len(data), parsed, times=items)
        return Turn(c_ns, repeated(read, encoded, times=items))

    return turn


def json_header() -> bytes:
    head = {"code": 310, "extFields": SEND_FIELDS, "flag": 0, "language": "JAVA", "opaque": 7, "version": 409}
    return json.dumps(head | {"serializeTypeCurrentRPC": "JSON"}, separators=(",", ":")).encode()


def read_json_header(data: bytes) -> dict[str, Any]:
    """Read a header, as fast as Python can; json_header.decode_header accepts more and is slower."""
    value: dict[str, Any] = json.loads(data)
    return value


def binary_header() -> bytes:
    assert SEND_FIELDS is not None
    block = b"".join(
        len(key).to_bytes(2, "big") + key.encode() + len(value).to_bytes(4, "big") + value.encode()
        for key, value in SEND_FIELDS.items()
    )
    return bytes.fromhex("0136 00 0199 00000007 00000000 00000000") + len(block).to_bytes(4, "big") + block


def send_reply(_root: Path, items: int) -> Turn:
    """Encode the answer to a send."""
    message_id, region = b"7F00000100002A9F0000000000ABCDEF", b"DefaultRegion"
    held = [ffi.from_buffer("uint8_t[]", data) for data in (message_id, region)]
    reply = ffi.new("rp_send_reply *", {"opaque": 7, "version": 409, "queue_id": 2, "queue_offset": 123, "trace_on": 1})
    reply.message_ids, reply.region = held
    reply.message_ids_size, reply.region_size = len(message_id), len(region)
    out = ffi.new("uint8_t[]", 4096)
    header = SendMessageResponseHeader(
        msg_id=message_id.decode(), queue_id=2, queue_offset=123, region="DefaultRegion", trace_on=True
    )
    c_ns = repeated(lib.rp_send_reply_encode, reply, out, 4096, times=items)
    return Turn(c_ns, repeated(lambda: RemotingCommand.response(0, None, header).encode(), times=items))


# --- replication and counters -----------------------------------------------------------------------------------------


def frames(_root: Path, items: int) -> Turn:
    """Head and CRC of a DATA frame with 128 KiB of the log; of the C only the CRC, which is nearly all."""
    data = bytes(range(256)) * 512
    held = ffi.from_buffer("uint8_t[]", data)

    def in_python() -> None:
        for number in range(items):
            FRAME.pack(25 + len(data), lib.RP_HA_TYPE_DATA)
            DATA.pack(number * len(data), 0, 1, zlib.crc32(data))

    return Turn(repeated(lib.rp_crc32, 0, held, len(data), times=items), spent(in_python))


def received(root: Path, items: int) -> Turn:
    """Time a slave's check of records of 1 KiB and their way into the log."""
    records, at = [], 0
    for number in range(items):
        records.append(message(number).encode(phy_offset=at, queue_offset=number // 8))
        at += len(records[-1])
    log = b"".join(records)
    prepare_log(root)
    rig = SlaveRig(root, file_size=FILE_SIZE)
    with closing(rig):
        rig.tables_end()
        rig.begin_stream()
        c_ns = 0
        for first in range(0, len(log), 1 << 16):
            rig.chunk(first, log[first : first + (1 << 16)])
            while lib.rp_ring_depth(rig.log_ring):
                c_ns += spent(lambda: lib.rp_send_run(rig.send, 0))
        assert rig.published == len(log)
    own, published = image_file(root / "own", FILE_SIZE), image_file(root / "position", 4096)

    def in_python() -> None:
        at = 0
        for first in range(0, len(log), 1 << 16):
            own[first : min(first + (1 << 16), len(log))] = log[first : first + (1 << 16)]
            end = min(first + (1 << 16), len(log))
            while at + 4 <= end and at + SIZE.unpack_from(own, at)[0] <= end:
                size, _queue, _offset, crc, _topic, _properties = fields_of(own, at)
                (body_size,) = SIZE.unpack_from(own, at + 84)
                assert zlib.crc32(own[at + 88 : at + 88 + body_size]) & 0x7FFFFFFF == crc
                at += size
            POSITION.pack_into(published, 0, at)
        assert at == len(log)

    return Turn(c_ns, spent(in_python))


def counters(root: Path, items: int) -> Turn:
    """Add a send to the sums of its queue."""
    count = traffic_loop(root.parent)
    c_ns = spent(lambda: count(items))
    sums: dict[tuple[int, str, str], list[int]] = {}

    def add(queue_id: int, group: str, topic: str, size: int) -> None:
        one = sums.get((queue_id, group, topic))
        if one is None:
            one = sums[queue_id, group, topic] = [0, 0, 0]
        one[0] += 1
        one[1] += size
        one[2] += 1

    def in_python() -> None:
        for number in range(items):
            add(number % 8, "", "TopicTest", 1024)

    return Turn(c_ns, spent(in_python))


def traffic_loop(directory: Path) -> Callable[[int], int]:
    """Return the compiled loop around rp_traffic_add. Raises: CalledProcessError: the core does not compile."""
    library = directory / "traffic.so"
    if not library.exists():
        subprocess.run([sys.executable, "csrc/objects.py"], cwd=ROOT, check=True)
        objects = (ROOT / "build/objects/list").read_text().split("\n")
        source = directory / "traffic.c"
        source.write_text(TRAFFIC_C)
        command = ["cc", "-O3", "-std=gnu11", "-fPIC", "-shared", f"-I{ROOT / 'csrc'}", str(source), *objects]
        subprocess.run([*command, "-lpthread", "-o", str(library)], check=True)
    return ctypes.CDLL(str(library)).count_traffic


SEND, MESSAGE = "once per send", "once per message"
PARTS = (
    Part("append of a record of 1 KiB, with CRC", "store/log", MESSAGE, 20_000, core_gain_store.append),
    Part(
        "header of a send, JSON", "wire", SEND, 20_000,
        headers(json_header(), lib.rp_json_header_parse, read_json_header),
    ),
    Part(
        "header of a send, binary", "wire", SEND, 20_000,
        headers(binary_header(), lib.rp_rocketmq_header_parse, rocketmq_header.decode_header),
    ),
    Part("answer to a send", "wire", SEND, 20_000, send_reply),
    Part("dispatch to queues and index", "store/dispatch", MESSAGE, 20_000, core_gain_store.dispatch),
    Part("pull: tag filter, slices, answer", "workers/pull", "once per pull, 64 units", 200, core_gain_store.pulls),
    Part("entry of keys into the index", "store/index", "once per key", 50_000, core_gain_store.index_keys),
    Part("timers: take, order, give", "store/timers", "once per timer", 20_000, core_gain_store.timers),
    Part(
        "transactions: half message and commit", "workers/send", "once per transaction", 2_000,
        core_gain_store.transactions,
    ),
    Part("replication: frame of 128 KiB, with CRC", "replication", "once per 128 KiB", 2_000, frames),
    Part("replication: check of received records", "store/log", MESSAGE, 20_000, received),
    Part("sums for statistics", "workers/shared", "once per send or pull", 200_000, counters),
)  # fmt: skip


def row(part: Part, turns: list[Turn]) -> tuple[str, ...]:
    ratios = [turn.python_ns / turn.c_ns for turn in turns]
    gain = statistics.median(turn.python_ns for turn in turns) / statistics.median(turn.c_ns for turn in turns)
    spread = f"{min(ratios):.3g} to {max(ratios):.3g}"
    return part.name, f"`{part.where}`", part.per, f"{gain:.3g}", spread, "yes" if gain >= BAR else "no"


def page(rows: list[tuple[str, ...]], turns: int) -> str:
    headings = ("part", "room of csrc", "runs", "gain", "lowest and highest", f"at least {BAR}")
    about = f"Gain: CPU time of plain Python divided by that of the C, medians of {turns} turns. "
    about += (__doc__ or "").partition("\n\n")[2]
    return f"""{report.page_head("Gain of the C core", "bench.core_gain")}

{textwrap.fill(" ".join(about.split()), report.PAGE_WIDTH)}

{report.markdown_table(headings, iter(rows))}
"""


@click.command(help=(__doc__ or "").partition("\n\n")[0])
@click.option("--only", help="parts whose name has this text")
@click.option("--turns", default=TURNS, show_default=True, help="for each part")
@click.option("--docs", type=click.Path(path_type=Path), help="write the table as a page")
def main(only: str | None, turns: int, docs: Path | None) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for part in (one for one in PARTS if not only or only in one.name):
            found = []
            for number in range(turns):
                click.echo(f"{part.name}: turn {number + 1} of {turns}", err=True)
                root = Path(directory) / "turn"
                root.mkdir()
                found.append(part.turn(root, part.items))
                shutil.rmtree(root)
            rows.append(row(part, found))
            click.echo("  ".join(rows[-1]))
    if docs:
        docs.write_text(page(rows, turns))


if __name__ == "__main__":
    main()
