"""The bytes that begin a connection by TLS, damaged: a server refuses them for one of its reasons, says nothing but an
alert, and never takes them for a handshake. In pieces they end alike. A TLS worker keeps nothing of them, and serves
others. ROCKETPY_SEED begins with another seed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import ssl
from collections import Counter

import pytest

from rocketpy.errors import TlsFailed
from rocketpy.remoting.abc import Peer
from rocketpy.tls import Certificates, TlsSession, client_context, server_context
from rocketpy.tls.handshake_counts import CLOSED, REASONS, SIZE
from rocketpy.tls.session import HANDSHAKE_BYTES_MAX, HANDSHAKE_S
from tests.support.budget import budget
from tests.support.certificates import HOST, Authority, tls_config

FIRST_SEED, CASES = int(os.environ.get("ROCKETPY_SEED", 0)), budget(1_500, 30_000)
RECORD_HEAD = 5  # type, version, size
ALERT, HANDSHAKE = 0x15, 0x16
ALERT_SIZE = RECORD_HEAD + 2
PEER = Peer("10.0.0.1", 1)
HELLOS = (  # of our clients by TLS 1.2 and 1.3, for broker.example.org
    bytes.fromhex(
        "16030100a4010000a00303c5f4d5fe893281d954e0c2e97d32ad09731bb4f5ae8a03a66dd8483844788c7300000ac02cc030"
        "c02bc02f00ff0100006d00000017001500001262726f6b65722e6578616d706c652e6f7267000b000403000102000a000c00"
        "0a001d0017001e00190018002300000016000000170000000d002a0028040305030603080708080809080a080b0804080508"
        "06040105010601030303010302040205020602"
    ),
    bytes.fromhex(
        "16030100f7010000f30303f3986767c544d51c45923604773c30bc5d7f42b5e4a53e89048520e467e6b5a9205d5ddd923120"
        "2093a22b05571db294bcba2c7945cc01a5adedefc93d6f15b1d9000813021303130100ff010000a200000017001500001262"
        "726f6b65722e6578616d706c652e6f7267000b000403000102000a00160014001d0017001e00190018010001010102010301"
        "04002300000016000000170000000d001e001c040305030603080708080809080a080b080408050806040105010601002b00"
        "03020304002d00020101003300260024001d0020b22192a027638ed89e44fb558df86d6f4492fc3493f1a5d63991ef0ca01d"
        "9f24"
    ),
)
SIZES = (0, 1, 2, 0x3FFF, 0x4000, 0x4001, 0x7FFF, 0xFFFF)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def torn(choose: random.Random, hello: bytes) -> bytes:
    """A hello with other sizes, other bytes, a part left out or put in, in several records, or with more behind it."""
    data = bytearray(hello)
    for _ in range(choose.randrange(1, 4)):
        way, at = choose.randrange(6), choose.randrange(len(data))
        if way == 0:
            data[at] ^= choose.randrange(1, 256)
        elif way == 1:  # a size: of the record, the message, a list or an extension
            data[at : at + 2] = choose.choice(SIZES).to_bytes(2, "big")
        elif way == 2:
            del data[at : at + choose.randrange(1, 40)]
        elif way == 3:
            data[at:at] = choose.randbytes(choose.randrange(1, 40))
        elif way == 4:
            data += choose.choice([hello, bytes(choose.randrange(1, 400)), choose.randbytes(choose.randrange(1, 400))])
        else:
            data = bytearray(in_records(choose, bytes(data)))
        data[0:1] = bytes([HANDSHAKE])
    return bytes(data)


def in_records(choose: random.Random, data: bytes) -> bytes:
    """The same message in records of other sizes, which TLS allows."""
    head, message, parts = data[:3], data[RECORD_HEAD:], b""
    while message:
        size = choose.randrange(1, len(message) + 1) if choose.random() < 0.9 else 1
        parts, message = parts + head + size.to_bytes(2, "big") + message[:size], message[size:]
        if len(parts) > HANDSHAKE_BYTES_MAX:
            break
    return parts or data


def end_of(context: ssl.SSLContext, data: bytes, choose: random.Random | None) -> tuple[str, bytes]:
    """How a server ends the connection, and what it says at last. `choose`: the data come in pieces."""
    session, reason, at = TlsSession.server(context), "", 0
    try:
        while at < len(data):
            size = len(data) if choose is None else choose.choice([1, 1, 2, 5, 100, 1000])
            assert session.receive(data[at : at + size]) == b"", "no plaintext comes with a hello"
            at += size
        session.receive_end()
    except TlsFailed as exc:
        reason = exc.reason
    said = session.take_outgoing()
    assert not session.is_established
    if said[:1] != bytes([ALERT]):  # the hello was whole, and answered
        return reason, b""
    assert len(said) == ALERT_SIZE, "nothing but an alert"
    return reason, said


def test_damaged_hellos_are_refused_alike_wherever_they_are_cut(authority: Authority) -> None:
    """Holds: network, TLS of servers."""
    context = server_context(tls_config(authority.issue().settings()))
    ends: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + CASES):
        choose = random.Random(seed)
        data = torn(choose, choose.choice(HELLOS))
        try:
            reason, alert = end_of(context, data, None)
            assert reason in REASONS, "a hello alone is no handshake"
            in_pieces, its_alert = end_of(context, data, choose)
            if SIZE not in (reason, in_pieces):  # the bound of bytes counts what has come, also behind the fault
                assert (in_pieces, its_alert) == (reason, alert)
        except BaseException as failure:
            failure.add_note(f"ROCKETPY_SEED={seed} begins with this case: {data.hex()}")
            raise
        ends[reason] += 1
    assert ends["protocol"] > CASES // 4 and ends[CLOSED] > CASES // 20, ends


def test_a_tls_worker_keeps_nothing_of_damaged_hellos(authority: Authority) -> None:
    """Some clients stay, some leave; those who stay are closed in time, and all are counted."""
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from rocketpy.reactor.handoff import handoff_pair, pass_to_tls
    from rocketpy.reactor.tls_handshakes import Handshake, HandshakeLoop

    certificates, now_s = Certificates.of_server(tls_config(authority.issue().settings())), 0.0
    selectors_end, workers_end = handoff_pair()
    completed: list[Handshake] = []
    worker = HandshakeLoop([workers_end], certificates, completed.append, now_s=lambda: now_s)

    def connect() -> tuple[socket.socket, socket.socket]:
        client, accepted = socket.socketpair()
        client.setblocking(False)
        with accepted:
            plain = pass_to_tls(selectors_end, accepted, PEER)
        assert plain is not None
        return client, plain

    gc.collect()  # descriptors of earlier tests, which would be closed meanwhile
    descriptors = len(os.listdir("/proc/self/fd"))
    for seed in range(FIRST_SEED, FIRST_SEED + CASES // 10):
        choose = random.Random(seed)
        with contextlib.ExitStack() as stack:
            ends = [tuple(map(stack.enter_context, connect())) for _ in range(8)]
            for client, _ in ends:
                client.sendall(torn(choose, choose.choice(HELLOS)))
                if choose.random() < 0.3:
                    client.close()
            for _ in range(4):
                worker.turn(0)
            now_s += HANDSHAKE_S
            worker.turn(0)
            assert all(plain.recv(1) == b"" for _, plain in ends), f"ROCKETPY_SEED={seed} begins with this case"
    assert not completed and len(worker) == 0 and sum(worker.counts.refused.values()) == 8 * (CASES // 10)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    client, plain = connect()
    session = TlsSession.client(client_context(tls_config(authority.trusting())), HOST)
    while not completed:
        client.sendall(session.take_outgoing())
        worker.turn(0.1)
        with contextlib.suppress(BlockingIOError):
            session.receive(client.recv(65_536))
    for end in (client, plain, completed[0].client, completed[0].arrival.inner, selectors_end, workers_end):
        end.close()
    worker.stop()
    worker.run()
