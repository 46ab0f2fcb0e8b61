"""How long does one call of each pure function take, in C and in Python?

    python bench/micro_native.py [--seconds 0.2]  >micro_native.json

`c_ns` is the C function itself, called in a loop from C data through cffi (whose own cost, measured by an empty
question, is `call_ns` and included); `c_twin_ns` adds the conversion of Python values that native/_c.py does;
`python_ns` is the Python twin. The fast path pays less than `c_ns`; the client pays `c_twin_ns` or `python_ns`.
Fixed workload, best of five rounds, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rocketpy.native import Native, choose
from rocketpy.native.abc import SERIALIZE_JSON, SERIALIZE_ROCKETMQ, Host, PullReply, Record, SendReply
from rocketpy.native.core import ffi, lib

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
HOST = Host(b"\x7f\x00\x00\x01", 10911)
RECORD = Record(topic=b"TopicTest", body=BODY, properties=PROPERTIES, born_host=HOST, store_host=HOST)
SEND_REPLY = SendReply(
    serialize_type=SERIALIZE_JSON,
    opaque=7,
    code=0,
    version=409,
    queue_id=2,
    queue_offset=123456,
    message_ids=b"7F00000100002A9F0000000000ABCDEF",
    region=b"DefaultRegion",
    trace_on=True,
)
PULL_REPLY = PullReply(
    serialize_type=SERIALIZE_JSON,
    opaque=7,
    code=0,
    version=409,
    suggest_which_broker_id=0,
    next_begin_offset=123456,
    min_offset=0,
    max_offset=123500,
    body_size=32768,
    remark=b"FOUND",
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


def twin_calls(native: Native) -> dict[str, Callable[[], Any]]:
    image = native.record_encode(RECORD)
    return {
        "crc32_1024": lambda: native.crc32(BODY),
        "record_encode_1024": lambda: native.record_encode(RECORD),
        "record_decode_1024": lambda: native.record_decode(image, check_crc=True),
        "json_header_14_fields": lambda: native.header_parse(SERIALIZE_JSON, JSON_HEADER),
        "rocketmq_header_14_fields": lambda: native.header_parse(SERIALIZE_ROCKETMQ, ROCKETMQ_HEADER),
        "send_reply": lambda: native.send_reply_encode(SEND_REPLY),
        "pull_reply": lambda: native.pull_reply_encode(PULL_REPLY),
        "string_hash": lambda: native.string_hash(b"TopicTest#order-1"),
        "property_find": lambda: native.property_find(PROPERTIES, b"TAGS"),
    }


def struct_of(kind: str, value: Any, texts: tuple[str, ...], held: list[Any]) -> Any:
    """A C struct filled by name from an attrs value; what it borrows goes into `held`."""
    target = ffi.new(f"{kind} *")
    for name in value.__slots__:
        if name in texts:
            held.append(ffi.from_buffer("uint8_t[]", getattr(value, name)))
            setattr(target, name, held[-1])
            setattr(target, f"{name}_size", len(held[-1]))
        elif isinstance(getattr(value, name), int):
            setattr(target, name, getattr(value, name))
    held.append(target)
    return target


def c_calls(held: list[Any]) -> dict[str, Callable[[], Any]]:
    """The C functions on C data that is ready."""
    body, image, header, block, key, properties, name = (
        ffi.from_buffer("uint8_t[]", data)
        for data in (
            BODY,
            choose("c").record_encode(RECORD),
            JSON_HEADER,
            ROCKETMQ_HEADER,
            b"TopicTest#order-1",
            PROPERTIES,
            b"TAGS",
        )
    )
    record = struct_of("rp_record", RECORD, ("topic", "body", "properties"), held)
    record.born_host.family = record.store_host.family = 4
    send = struct_of("rp_send_reply", SEND_REPLY, ("message_ids", "region"), held)
    pull = struct_of("rp_pull_reply", PULL_REPLY, ("remark",), held)
    out = ffi.new("uint8_t[]", 4096)
    view, parsed = ffi.new("rp_record_view *"), ffi.new("rp_header *")
    value, size = ffi.new("const uint8_t **"), ffi.new("uint32_t *")
    return {
        "crc32_1024": partial(lib.rp_crc32, 0, body, len(body)),
        "record_encode_1024": partial(lib.rp_record_encode, record, out),
        "record_decode_1024": partial(lib.rp_record_decode, image, len(image), 1, view),
        "json_header_14_fields": partial(lib.rp_json_header_parse, header, len(header), parsed),
        "rocketmq_header_14_fields": partial(lib.rp_rocketmq_header_parse, block, len(block), parsed),
        "send_reply": partial(lib.rp_send_reply_encode, send, out, 4096),
        "pull_reply": partial(lib.rp_pull_reply_encode, pull, out, 4096),
        "string_hash": partial(lib.rp_string_hash, key, len(key)),
        "property_find": partial(lib.rp_property_find, properties, len(properties), name, len(name), value, size),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=0.2, help="per function and twin (default 0.2)")
    seconds = parser.parse_args().seconds
    held: list[Any] = []
    in_c, c_twin, python = c_calls(held), twin_calls(choose("c")), twin_calls(choose("python"))
    functions = {
        name: {
            "c_ns": round(nanoseconds(in_c[name], seconds), 1),
            "c_twin_ns": round(nanoseconds(c_twin[name], seconds), 1),
            "python_ns": round(nanoseconds(python[name], seconds), 1),
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
