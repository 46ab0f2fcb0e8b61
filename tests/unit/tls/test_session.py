"""TlsSession: handshakes fed whole and byte by byte, refused ones, and records that are not what they should be."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from rocketpy.errors import TlsFailed
from rocketpy.tls import TlsSession, client_context, server_context
from rocketpy.tls.session import HANDSHAKE_BYTES_MAX, RECORD_SIZE, SILENT_BYTES_MAX
from tests.support.certificates import HOST, PLAINTEXT, Authority, converse, tls_config
from tests.support.silent_records import Client12, Client13, KeyLog


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def server_of(authority: Authority, *given: dict[str, str]) -> TlsSession:
    return TlsSession.server(server_context(tls_config(authority.issue().settings(), *given)))


def client_of(authority: Authority, *given: dict[str, str], host: str = HOST) -> TlsSession:
    return TlsSession.client(client_context(tls_config(authority.trusting(), *given)), host)


def old_client(authority: Authority) -> TlsSession:
    """Of TLS 1.2, which finds out about its certificate within the handshake."""
    context = client_context(tls_config(authority.trusting()))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return TlsSession.client(context, HOST)


@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_bytes_in_pieces_make_the_same_plaintext(authority: Authority, size: int) -> None:
    client, server = client_of(authority), server_of(authority)
    converse(client, server, size)
    for source, target in ((client, server), (server, client)):
        source.send(PLAINTEXT)
        data, got = source.take_outgoing(), bytearray()
        assert PLAINTEXT[:64] not in data
        for at in range(0, len(data), size):
            got += target.receive(data[at : at + size])
        assert bytes(got) == PLAINTEXT and not target.take_outgoing()


def test_plaintext_that_comes_with_the_end_of_the_handshake(authority: Authority) -> None:
    client, server = client_of(authority), server_of(authority)
    server.receive(client.take_outgoing())
    client.receive(server.take_outgoing())
    client.send(PLAINTEXT)
    assert server.receive(client.take_outgoing()) == PLAINTEXT and server.is_established


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "protocol"),
        (b"\x16" + b"garbage" * 100, "protocol"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "protocol"),  # a hello without content
        (b"\x16\x03\x01\x02\x00" + bytes(512), "protocol"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "protocol"),
        (b"\x16\x03\x01\x00\x05\x01\x02\x02\x02\x00", "size"),  # a hello of more than 128 KiB
    ],
)
def test_no_hello(authority: Authority, data: bytes, reason: str) -> None:
    """Holds: network, TLS of servers."""
    for size in (1, 1000):
        server = server_of(authority)
        with pytest.raises(TlsFailed) as caught:
            for at in range(0, len(data), size):
                server.receive(data[at : at + size])
        assert caught.value.reason == reason and not server.is_established
        answer = server.take_outgoing()
        assert answer[:1] in (b"", b"\x15"), "nothing but an alert"


def test_a_handshake_has_a_bound_of_bytes(authority: Authority) -> None:
    """TLS itself allows a hello of 128 KiB."""
    server = server_of(authority)
    hello = b"\x01" + (100_000).to_bytes(3, "big") + bytes(100_000)
    sent = 0
    with pytest.raises(TlsFailed) as caught:
        for at in range(0, len(hello), 1000):
            piece = hello[at : at + 1000]
            server.receive(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece)
            sent += 5 + len(piece)
    assert caught.value.reason == "size" and HANDSHAKE_BYTES_MAX - 2000 < sent <= HANDSHAKE_BYTES_MAX


def test_a_long_chain_of_certificates_is_cut_off(authority: Authority) -> None:
    """TLS itself allows 100 KiB of certificates.
    Fault: Compressed certificates passed the bound, with OpenSSL 3.2 and newer."""
    server = server_of(authority, authority.asking())
    padded = authority.issue()
    chain = padded.certificate.read_bytes()
    padded.certificate.write_bytes(chain + authority.ca_file.read_bytes() * 200)
    client = client_of(authority, padded.settings("client"))
    with pytest.raises(TlsFailed) as caught:
        converse(client, server, 1000)
    assert caught.value.reason == "size"


def test_the_end_of_the_stream(authority: Authority) -> None:
    client, server = client_of(authority), server_of(authority)
    server.receive(client.take_outgoing()[:100])
    with pytest.raises(TlsFailed, match="closed the connection during the TLS handshake") as caught:
        server.receive_end()
    assert caught.value.reason == "closed"
    client, server = client_of(authority), server_of(authority)
    converse(client, server)
    server.receive_end()
    assert server.is_ended


@pytest.mark.parametrize("where", [0, 5, 40, -1])
def test_a_changed_record_ends_the_connection(authority: Authority, where: int) -> None:
    client, server = client_of(authority), server_of(authority)
    converse(client, server)
    client.send(b"x" * 100)
    data = bytearray(client.take_outgoing())
    data[where] ^= 0x55
    with pytest.raises(TlsFailed) as caught:
        server.receive(data)
        server.receive(bytes(1 << 15))  # a changed length waits for more
    assert caught.value.reason == "protocol"


def test_a_farewell_is_no_failure(authority: Authority) -> None:
    client, server = client_of(authority), server_of(authority)
    converse(client, server)
    client.send(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client._tls.unwrap()  # the farewell of a peer that says it; ours do not
    assert server.receive(client.take_outgoing()) == b"last" and server.is_ended


def certificates_refused_by_a_client(authority: Authority) -> dict[str, tuple[TlsSession, TlsSession, str]]:
    other = Authority(authority.ca_file.parent, "other")
    expired = TlsSession.server(server_context(tls_config(authority.issue(days=-1).settings())))
    return {
        "of another authority": (client_of(other), server_of(authority), "unable to get local issuer certificate"),
        "expired": (client_of(authority), expired, "certificate has expired"),
        "for another host": (client_of(authority, host="127.0.0.2"), server_of(authority), "IP address mismatch"),
        "for another name": (client_of(authority, host="name"), server_of(authority), "Hostname mismatch"),
    }


def test_what_a_client_refuses(authority: Authority) -> None:
    """Both sides know why."""
    for name, (client, server, message) in certificates_refused_by_a_client(authority).items():
        with pytest.raises(TlsFailed, match=message) as caught:
            converse(client, server)
        assert caught.value.reason == "certificate", name
        with pytest.raises(TlsFailed, match=r"it refuses the connection: .*ALERT") as told:
            server.receive(client.take_outgoing())
        assert told.value.reason == "alert", name


def test_what_a_server_that_asks_refuses(authority: Authority) -> None:
    other = Authority(authority.ca_file.parent, "foreign")
    shown = {"none": {}, "foreign": other.issue("client").settings("client")}
    shown["expired"] = authority.issue("client", days=-1).settings("client")
    for name, certificate in shown.items():
        client, server = client_of(authority, certificate), server_of(authority, authority.asking())
        with pytest.raises(TlsFailed) as caught:
            converse(client, server)
        assert caught.value.reason == "certificate" and not server.is_established, name
        with pytest.raises(TlsFailed) as told:
            client.receive(server.take_outgoing())
        assert told.value.reason == "alert", name
    trusted = authority.issue("client").settings("client")
    for certificate, how in ((trusted, "require"), (trusted, "optional"), ({}, "optional")):
        client, server = client_of(authority, certificate), server_of(authority, authority.asking(how))
        converse(client, server)
        assert server.is_established


def test_an_old_client_without_certificate(authority: Authority) -> None:
    client, server = old_client(authority), server_of(authority, authority.asking())
    with pytest.raises(TlsFailed, match="it shows no certificate"):
        converse(client, server)
    assert not client.is_established


# --- records without data ---------------------------------------------------------------------------------------------

SECOND_HALF = SILENT_BYTES_MAX // 2


def updating(authority: Authority, directory: Path) -> tuple[Client13, TlsSession]:
    """A client of TLS 1.3, and its server."""
    context = client_context(tls_config(authority.trusting()))
    log = KeyLog(context, directory / "keys")
    client, server = TlsSession.client(context, HOST), server_of(authority)
    converse(client, server)
    cipher = client._tls.cipher()
    assert cipher is not None
    return log.client_13(cipher[0]), server


def renegotiating(authority: Authority, directory: Path) -> tuple[Client12, TlsSession]:
    """A client of TLS 1.2, and its server."""
    context = client_context(tls_config(authority.trusting()))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    log = KeyLog(context, directory / "keys")
    client, server = TlsSession.client(context, HOST), server_of(authority)
    server.receive(client.take_outgoing())
    hello = server.take_outgoing()
    client.receive(hello)
    converse(client, server)
    return log.client_12(hello[11:43]), server


def test_updates_of_keys_without_data_end_a_session(authority: Authority, tmp_path: Path) -> None:
    """Fault: One client stopped a server with updates of keys, of which one read handled as many as came.

    Holds: network, TLS of servers."""
    client, server = updating(authority, tmp_path)
    for _ in range(3):
        assert server.receive(client.key_updates(SECOND_HALF)) == b""
        assert server.receive(client.key_updates(SECOND_HALF // 2) + client.data(b"x")) == b"x", "and count anew"
    assert server.receive(client.key_updates(SECOND_HALF)) == b""
    with pytest.raises(TlsFailed, match="records without data") as caught:
        server.receive(client.key_updates(SECOND_HALF))
    assert caught.value.reason == "records"


def test_hellos_of_a_refused_renegotiation_end_a_session(authority: Authority, tmp_path: Path) -> None:
    client, server = renegotiating(authority, tmp_path)
    assert server.receive(client.data(b"x") + client.hellos(SECOND_HALF) + client.data(b"y")) == b"xy"
    assert server.receive(client.hellos(SECOND_HALF)) == b""
    with pytest.raises(TlsFailed) as caught:
        server.receive(client.hellos(SECOND_HALF))
    assert caught.value.reason == "records"


def test_answers_that_nobody_takes_are_bounded(authority: Authority, tmp_path: Path) -> None:
    """Fault: A name server kept each answer to an update of keys for a client that read nothing."""
    client, server = updating(authority, tmp_path)

    def ask() -> None:
        asked = client.key_updates(SECOND_HALF, is_requested=True)
        assert server.receive(asked + client.data(b"x")) == b"x"

    for _ in range(4):
        ask()
        assert abs(len(server.take_outgoing()) - SECOND_HALF) < 100
    ask()
    server.send(b"y" * SILENT_BYTES_MAX)  # is no answer
    with pytest.raises(TlsFailed) as caught:
        for _ in range(2):
            ask()
    assert caught.value.reason == "records" and server.outgoing_bytes < 3 * SILENT_BYTES_MAX


def test_a_record_in_pieces_is_no_record_without_data(authority: Authority) -> None:
    """The largest one, byte by byte."""
    client, server = client_of(authority), server_of(authority)
    converse(client, server)
    client.send(bytes(RECORD_SIZE))
    record = client.take_outgoing()
    for at in range(len(record) - 1):
        assert server.receive(record[at : at + 1]) == b""
    assert len(server.receive(record[-1:])) == RECORD_SIZE


def test_what_came_before_a_bad_record(authority: Authority) -> None:
    client, server = client_of(authority), server_of(authority)
    converse(client, server)
    data = b"".join(client.encrypt(memoryview(PLAINTEXT)))
    client.send(b"bad")
    bad = bytearray(client.take_outgoing())
    bad[-1] ^= 1
    target = memoryview(bytearray(len(data) + len(bad) + RECORD_SIZE))
    size = server.receive_into(memoryview(data + bad), target)
    assert target[:size] == PLAINTEXT and server.failure is not None and server.failure.reason == "protocol"
    with pytest.raises(TlsFailed):
        server.receive(data)
