"""Requests of a stranger who means no good: every code, fields and bodies of every wrong form, in both serialisations.

Seeded: the same seed gives the same bytes. `attack` sends them alone and pipelined, closes connections at any moment,
and sees to it that a connection that was not closed is still served.

    python -m tests.support.hostile PORT SEED COUNT     against a server that runs
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import sys
import time
import zlib
from collections.abc import Iterator, Sequence

import attrs

from rocketpy.codes import RequestCode
from rocketpy.remoting.frame import SerializeType
from tests.support.hostile_values import (
    BODIES,
    KNOWN_CODES,
    LARGE_TEXTS,
    MARKS,
    NAMES,
    ODD_CODES,
    PLAUSIBLE,
    PROPERTIES,
    RAW_BODIES,
    TEXTS,
)

ANSWER_TIMEOUT_S = 60.0  # generous: only a server that is stuck reaches it
PROBE_OPAQUE = 0x7ABCDEF0


@attrs.frozen
class Request:
    """One frame."""

    code: int
    data: bytes = attrs.field(repr=False)
    is_cut: bool = False  # what follows becomes its end, and may not be enough


@attrs.define
class Hostile:
    """An endless source of requests."""

    random: random.Random
    _opaque: int = 0

    @classmethod
    def of(cls, seed: int) -> Hostile:
        return cls(random.Random(seed))

    def request(self, code: int) -> Request:
        self._opaque += 1
        kind = self.random.choice(list(SerializeType))
        fields, body = self._fields(), self._body()
        flag = self.random.choice([1, 2, 3, -1]) if self.random.random() < 0.12 else 0
        encode = _json_frame if kind is SerializeType.JSON else _rocketmq_frame
        data = encode(self.random, code, self._opaque, flag, fields, body)
        if self.random.random() < 0.03:
            return Request(code, data[: self.random.randrange(4, len(data))], is_cut=True)
        return Request(code, data)

    def _fields(self) -> dict[str, bytes]:
        """Plausible ones, of which some are missing or odd; now and then nothing but odd ones."""
        chance = self.random.random()
        if chance < 0.05:
            return {}
        if chance < 0.15:
            odd = self._text()
            return dict.fromkeys(NAMES, odd if len(odd) < 10_000 else b"7")
        fields = {name: PLAUSIBLE.get(name, "1").encode() for name in NAMES}
        for name in self.random.sample(NAMES, self.random.choice([0, 1, 2, 3, 10])):
            fields.pop(name)
        for name in self.random.sample(NAMES, self.random.choice([1, 1, 2, 3, 8])):
            fields[name] = self._text()
        if self.random.random() < 0.3:
            fields["i"] = fields["properties"] = b"".join(self.random.sample(PROPERTIES, 2))
        if chance < 0.3:
            fields[self._text()[:1000].decode("utf-8", "replace")] = b"x"
        return fields

    def _text(self) -> bytes:
        return self.random.choice(LARGE_TEXTS if self.random.random() < 0.004 else TEXTS)

    def _body(self) -> bytes:
        chance = self.random.random()
        if chance < 0.3:
            return b""
        if chance < 0.6:
            return self.random.choice(RAW_BODIES)
        text = json.dumps(self._spoiled(self.random.choice(BODIES))).encode()
        if chance < 0.7:
            text = text[: self.random.randrange(len(text) + 1)]
        return zlib.compress(text) if chance > 0.95 else text

    def _spoiled(self, value: object) -> object:
        """`value` with odd values in odd places."""
        if self.random.random() < 0.12:
            return self.random.choice(MARKS)
        if isinstance(value, dict):
            return {
                (str(self.random.choice(MARKS)) if self.random.random() < 0.05 else key): self._spoiled(member)
                for key, member in value.items()
                if self.random.random() > 0.05
            }
        if isinstance(value, list):
            return [self._spoiled(item) for item in value * self.random.choice([1, 1, 1, 0, 50])]
        return value


def _frame(kind: SerializeType, header: bytes, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def _json_frame(
    chance: random.Random, code: int, opaque: int, flag: int, fields: dict[str, bytes], body: bytes
) -> bytes:
    texts: dict[str, object] = {name: value.decode("utf-8", "surrogateescape") for name, value in fields.items()}
    if texts and chance.random() < 0.15:
        texts[chance.choice(list(texts))] = chance.choice(MARKS)  # no string at all
    header: dict[str, object] = {
        "code": code,
        "flag": flag,
        "language": chance.choice(["JAVA", "GO", "KLINGON", 7]),
        "opaque": opaque,
        "version": chance.choice([0, 1, 300, 409, 401, 500, -1]),
        "extFields": texts,
        "serializeTypeCurrentRPC": "JSON",
    }
    if chance.random() < 0.03:
        header[chance.choice(list(header))] = chance.choice(MARKS)
    if chance.random() < 0.5:
        return _frame(SerializeType.JSON, json.dumps(header).encode(), body)  # escapes
    raw = json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return _frame(SerializeType.JSON, raw, body)


def _rocketmq_frame(
    chance: random.Random, code: int, opaque: int, flag: int, fields: dict[str, bytes], body: bytes
) -> bytes:
    entries = b""
    for name, value in fields.items():
        key = name.encode("utf-8", "replace")[:32_767]
        entries += struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
    wrong = chance.choice([-1, 1 << 30, -(1 << 31), 3]) if chance.random() < 0.03 else 0
    language, version = chance.choice([0, 7, 255]), chance.choice([0, 300, 409, -1])
    fixed = struct.pack(">hBhii", max(-32768, min(32767, code)), language, version, opaque, flag)
    remark = chance.choice([b"", b"x", b"\x01" * 5_000])
    header = fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", wrong or len(entries)) + entries
    return _frame(SerializeType.ROCKETMQ, header[:0xFFFFFF], body)


def plan(seed: int, count: int) -> Iterator[list[Request]]:
    """`count` requests in groups, each for one connection; every code comes about equally often."""
    hostile = Hostile.of(seed)
    codes: list[int] = []
    while count > 0:
        size = min(count, hostile.random.choice([1, 1, 1, 2, 5, 20]))
        while len(codes) < size:
            codes += hostile.random.sample([*KNOWN_CODES, *ODD_CODES], len(KNOWN_CODES) + len(ODD_CODES))
        yield [hostile.request(codes.pop()) for _ in range(size)]
        count -= size


def known_attacks() -> list[bytes]:
    """Requests that once ended a broker, or leaked for ever; each may be repeated by anybody."""
    control, digits = "\x01" * 2_500_000, "9" * 5_000
    heartbeat = json.dumps({"clientID": "x", "consumerDataSet": [{"groupName": control}]}).encode()
    second = json.dumps({"clientID": "y", "consumerDataSet": [{"groupName": "a\nb\ud800"}]}).encode()
    filtered = b'{"subscriptionData":{"topic":"Prey","subString":"x","expressionType":"%s"}}' % (b"\x01" * 3_000_000)
    send = {name: PLAUSIBLE[name] for name in "abcdefghjklm"}
    return [
        _plain_frame(RequestCode.GET_TOPIC_STATS_INFO, {"topic": control}),
        _plain_frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": control}),
        _plain_frame(RequestCode.GET_KV_CONFIG, {"namespace": control, "key": control[:100]}),
        _plain_frame(RequestCode.CHECK_CLIENT_CONFIG, {}, filtered),  # its remark would grow to 18 MB
        _plain_frame(RequestCode.UPDATE_BROKER_CONFIG, {}, control.encode() * 6 + b"=1"),
        _plain_frame(RequestCode.UPDATE_NAMESRV_CONFIG, {}, control.encode() * 6 + b"=1"),
        _plain_frame(RequestCode.HEART_BEAT, {}, heartbeat),
        _plain_frame(RequestCode.HEART_BEAT, {}, second),
        _plain_frame(RequestCode.SEND_MESSAGE_V2, send | {"i": f"DELAY\x01{digits}\x02"}, b"body"),
        _plain_frame(RequestCode.SEND_MESSAGE_V2, send | {"b": "Unheard", "i": f"DELAY\x01{digits}\x02"}, b"body"),
        _plain_frame(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": control, "clientId": control[:100]}),
        _plain_frame(RequestCode.GET_ALL_TOPIC_CONFIG, {f"{n:x}": "" for n in range(200_000)}),
        _plain_frame(RequestCode.GET_ALL_TOPIC_CONFIG, {}, bytes(16_000_000)),
    ]


def _plain_frame(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 409, "extFields": fields}
    return _frame(SerializeType.JSON, json.dumps(header, ensure_ascii=True).encode(), body)


def repeat_known_attacks(port: int, times: int, probe_code: int) -> None:
    """Each of them `times` times, on connections of their own and several at once; some close before the answer."""
    for data in known_attacks():
        with contextlib.ExitStack() as stack:  # an error closes all: the next try would be told of the others
            address = ("127.0.0.1", port)
            socks = [stack.enter_context(socket.create_connection(address, ANSWER_TIMEOUT_S)) for _ in range(times)]
            for number, sock in enumerate(socks):
                with sock:
                    if _send(sock, data + _probe(probe_code)) and number % 2:
                        _is_served(sock, 0, [Request(0, data)])


def attack(port: int, seed: int, count: int, probe_code: int) -> int:
    """Send `count` requests; returns how many groups left their connection open and served.

    Args:
        probe_code: a request that needs no fields, by which a connection shows that it is served.
    Raises:
        AssertionError: a connection was neither closed nor served; the seed and the requests are named.
    """
    chance, served = random.Random(seed), 0
    for group in plan(seed, count):
        with socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S) as sock:
            data = b"".join(request.data for request in group)
            if chance.random() < 0.2:
                _send(sock, data[: chance.randrange(len(data) + 1)])
                continue  # closed wherever it is
            is_cut = any(request.is_cut for request in group)
            if _send(sock, data + _probe(probe_code)) and not is_cut and chance.random() > 0.1:
                served += _is_served(sock, seed, group)
    return served


def _probe(code: int) -> bytes:
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": PROBE_OPAQUE, "version": 409}
    return _frame(SerializeType.JSON, json.dumps(header).encode(), b"")


def _send(sock: socket.socket, data: bytes) -> bool:
    """Whether the peer took it all; it may answer, or close, before the end."""
    sock.settimeout(1.0)
    view, deadline = memoryview(data), time.monotonic() + ANSWER_TIMEOUT_S
    try:
        while view:
            try:
                view = view[sock.send(view) :]
            except TimeoutError:
                with contextlib.suppress(TimeoutError):  # or it has not come to read
                    sock.recv(1 << 20)  # it waits for us to read
                assert time.monotonic() < deadline
    except ConnectionError:
        return False
    finally:
        sock.settimeout(ANSWER_TIMEOUT_S)
    return True


def _is_served(sock: socket.socket, seed: int, group: Sequence[Request]) -> bool:
    """Wait for the probe's answer, True, or the end of the connection, False."""
    buffer = bytearray()
    try:
        while chunk := sock.recv(1 << 20):
            buffer += chunk
            while len(buffer) >= 4 and len(buffer) >= 4 + (size := struct.unpack_from(">i", buffer)[0]):
                if f'"opaque":{PROBE_OPAQUE}'.encode() in buffer[: 4 + size]:
                    return True
                del buffer[: 4 + size]
    except TimeoutError:
        raise AssertionError(f"seed {seed}: neither served nor closed after {group}") from None
    except ConnectionError:
        pass
    return False


if __name__ == "__main__":
    found = attack(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), RequestCode.GET_BROKER_CONFIG)
    print(f"served after {found} groups")
