"""How long does one call of each pure function take, in C and in Python?

    python bench/micro_native.py [--seconds 0.2]  >micro_native.json

`c_ns` is the C function itself, called in a loop from C data through cffi (whose own cost, measured by an empty
question, is `call_ns` and included); `python_ns` is what the client calls in its place.
Fixed workload, best of five rounds, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from rocketpy.codes import OUR_VERSION
from rocketpy.message.properties import find_property
from rocketpy.message.record import decode_record, encode_record
from rocketpy.message.tags import string_hash
from rocketpy.native.core import ffi, lib
from rocketpy.remoting import json_header, rocketmq_header
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.pull import PullMessageResponseHeader
from rocketpy.remoting.headers.send import SendMessageResponseHeader

ROUNDS = 5
BODY = bytes(range(256)) * 4
PROPERTIES = (
    b"KEYS\x01order-1\x02UNIQ_KEY\x010A00000100002A9F00000000000000AA\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"
)
SEND_FIELDS = {
    "a": "please_rename_unique_group_name",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x010A00000100002A9F00000000000000AA\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "false",
    "n": "broker-a",
}
JSON_HEADER = json.dumps(
    {
        "code": 310,
        "extFields": SEND_FIELDS,
        "flag": 0,
        "language": "JAVA",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 409,
    },
    separators=(",", ":"),
).encode()
_BLOCK = b"".join(
    len(key).to_bytes(2, "big") + key.encode() + len(value).to_bytes(4, "big") + value.encode()
    for key, value in SEND_FIELDS.items()
)
ROCKETMQ_HEADER = bytes.fromhex("0136 00 0199 00000007 00000000 00000000") + len(_BLOCK).to_bytes(4, "big") + _BLOCK
NUMBERS = {"queue_id": 2, "queue_offset": 123456, "phy_offset": 1 << 30, "born_timestamp_ms": 1_700_000_000_000}
IMAGE = encode_record(
    topic="TopicTest",
    body=BODY,
    properties=PROPERTIES,
    born_host=("127.0.0.1", 50000),
    store_host=("127.0.0.1", 10911),
    store_timestamp_ms=1_700_000_000_000,
    **NUMBERS,
)
SEND_REPLY = SendMessageResponseHeader(
    msg_id="7F00000100002A9F0000000000ABCDEF", queue_id=2, queue_offset=123456, region="DefaultRegion", trace_on=True
)
PULL_REPLY = PullMessageResponseHeader(
    suggest_which_broker_id=0, next_begin_offset=123456, min_offset=0, max_offset=123500
)


def nanoseconds(call: Callable[[], Any], seconds: float) -> float:
    """Best time of one call, over ROUNDS rounds of `seconds` in all."""
    count = 1
    while True:
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        elapsed = time.perf_counter_ns() - start
        if elapsed > seconds * 1e9 / ROUNDS / 2:
            break
        count *= 2
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter_ns() - start) / count)
    return best


def python_calls() -> dict[str, Callable[[], Any]]:
    fields = {name: getattr(decode_record(IMAGE), name) for name in (*NUMBERS, "born_host", "store_host")}
    fields |= {"topic": "TopicTest", "body": BODY, "properties": PROPERTIES, "store_timestamp_ms": 1_700_000_000_000}
    return {
        "crc32_1024": partial(zlib.crc32, BODY),
        "record_encode_1024": partial(encode_record, **fields),
        "record_decode_1024": partial(decode_record, IMAGE, check_crc=True),
        "json_header_14_fields": partial(json_header.decode_header, JSON_HEADER),
        "rocketmq_header_14_fields": partial(rocketmq_header.decode_header, ROCKETMQ_HEADER),
        "send_reply": lambda: RemotingCommand.response(0, None, SEND_REPLY).encode(),
        "pull_reply": lambda: RemotingCommand.response(0, "FOUND", PULL_REPLY).encode(),
        "string_hash": partial(string_hash, "TopicTest#order-1"),
        "property_find": partial(find_property, PROPERTIES, b"TAGS"),
    }


def struct_of(kind: str, numbers: dict[str, int], texts: dict[str, bytes], held: list[Any]) -> Any:
    """Make a C struct filled by name; it and the objects that it borrows go into `held`."""
    target = ffi.new(f"{kind} *", numbers)
    for name, text in texts.items():
        held.append(ffi.from_buffer("uint8_t[]", text))
        setattr(target, name, held[-1])
        setattr(target, f"{name}_size", len(text))
    held.append(target)
    return target


def c_calls(held: list[Any]) -> dict[str, Callable[[], Any]]:
    """Return calls of the C functions on C data that is ready."""
    body, image, header, block, key, properties = (
        ffi.from_buffer("uint8_t[]", data)
        for data in (BODY, IMAGE, JSON_HEADER, ROCKETMQ_HEADER, b"TopicTest#order-1", PROPERTIES)
    )
    record = struct_of("rp_record", NUMBERS, {"topic": b"TopicTest", "body": BODY, "properties": PROPERTIES}, held)
    record.born_host.family = record.store_host.family = 4
    reply = {"opaque": 7, "version": OUR_VERSION}
    send = struct_of(
        "rp_send_reply",
        reply | {"queue_id": 2, "queue_offset": 123456, "trace_on": 1},
        {"message_ids": SEND_REPLY.msg_id.encode(), "region": b"DefaultRegion"},
        held,
    )
    offsets = {"next_begin_offset": 123456, "max_offset": 123500, "body_size": 32768}
    pull = struct_of("rp_pull_reply", reply | offsets, {"remark": b"FOUND"}, held)
    out = ffi.new("uint8_t[]", 4096)
    view, parsed = ffi.new("rp_record_view *"), ffi.new("rp_header *")
    value = ffi.new("const uint8_t **")
    return {
        "crc32_1024": partial(lib.rp_crc32, 0, body, len(body)),
        "record_encode_1024": partial(lib.rp_record_encode, record, out),
        "record_decode_1024": partial(lib.rp_record_decode, image, len(image), 1, view),
        "json_header_14_fields": partial(lib.rp_json_header_parse, header, len(header), parsed),
        "rocketmq_header_14_fields": partial(lib.rp_rocketmq_header_parse, block, len(block), parsed),
        "send_reply": partial(lib.rp_send_reply_encode, send, out, 4096),
        "pull_reply": partial(lib.rp_pull_reply_encode, pull, out, 4096),
        "string_hash": partial(lib.rp_string_hash, key, len(key)),
        "property_find": partial(lib.rp_property_find, properties, len(properties), b"TAGS", value),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=0.2, help="per function and language (default 0.2)")
    seconds = parser.parse_args().seconds
    held: list[Any] = []
    in_c, in_python = c_calls(held), python_calls()
    functions = {
        name: {
            "c_ns": round(nanoseconds(in_c[name], seconds), 1),
            "python_ns": round(nanoseconds(in_python[name], seconds), 1),
        }
        for name in in_c
    }
    result = {
        "bench": "micro_native",
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": sys.version.split()[0],
        },
        "crc_is_accelerated": bool(lib.rp_crc32_is_accelerated()),
        "call_ns": round(nanoseconds(partial(lib.rp_crc32_is_accelerated), seconds), 1),
        "functions": functions,
    }
    json.dump(result, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
