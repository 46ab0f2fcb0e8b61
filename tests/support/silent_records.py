"""A TLS client that sends what Python's `ssl` cannot: records without data, in floods.

Python does the handshake and writes the secrets of the connection to its key log; the records behind it are made here:
updates of keys (TLS 1.3), and hellos that ask for a renegotiation (TLS 1.2). RFC 8446 and 5246 name the parts.
"""

from __future__ import annotations

import hmac
import socket
import ssl
import struct
from pathlib import Path

import attrs
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

DATA, HANDSHAKE = 23, 22  # types of records
KEY_UPDATE = b"\x18\x00\x00\x01"  # of the handshake: type 24, one byte
HELLO = b"\x01\x00\x00\x2a\x03\x03" + bytes(32) + b"\x00\x00\x02\xc0\x2b\x01\x00"  # TLS 1.2, one cipher, no extensions
HELLO = HELLO[:1] + (len(HELLO) - 4).to_bytes(3, "big") + HELLO[4:]


@attrs.define(eq=False)
class Client13:
    """The sending side of an established connection of TLS 1.3."""

    hash_name: str
    key_size: int
    secret: bytes
    sequence: int = 0
    _sealer: AESGCM = attrs.field(init=False)
    _iv: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._use(self.secret)

    def data(self, plaintext: bytes) -> bytes:
        return self._record(plaintext + bytes([DATA]))

    def key_update(self, *, is_requested: bool = False) -> bytes:
        """Return an update of the key of this side; the records behind it are sealed by the new one."""
        record = self._record(KEY_UPDATE + bytes([is_requested, HANDSHAKE]))
        self._use(self._expand(self.secret, b"traffic upd", len(self.secret)))
        return record

    def key_updates(self, size: int, *, is_requested: bool = False) -> bytes:
        """Return at least so many bytes of updates."""
        made = bytearray()
        while len(made) < size:
            made += self.key_update(is_requested=is_requested)
        return bytes(made)

    def _use(self, secret: bytes) -> None:
        self.secret, self.sequence = secret, 0
        self._sealer = AESGCM(self._expand(secret, b"key", self.key_size))
        self._iv = self._expand(secret, b"iv", 12)

    def _record(self, inner: bytes) -> bytes:
        head = struct.pack(">BHH", DATA, 0x0303, len(inner) + 16)
        nonce = int.from_bytes(self._iv, "big") ^ self.sequence
        self.sequence += 1
        return head + self._sealer.encrypt(nonce.to_bytes(12, "big"), inner, head)

    def _expand(self, secret: bytes, label: bytes, size: int) -> bytes:
        info = struct.pack(">HB", size, len(label) + 6) + b"tls13 " + label + b"\0\x01"
        return hmac.digest(secret, info, self.hash_name)[:size]


@attrs.define(eq=False)
class Client12:
    """The sending side of an established connection of TLS 1.2 by AES-GCM. `sequence`: after the Finished message."""

    key: bytes
    salt: bytes
    sequence: int = 1

    def data(self, plaintext: bytes) -> bytes:
        return self._record(DATA, plaintext)

    def hellos(self, size: int) -> bytes:
        """Return at least so many bytes of hellos."""
        made = bytearray()
        while len(made) < size:
            made += self._record(HANDSHAKE, HELLO)
        return bytes(made)

    def _record(self, kind: int, plaintext: bytes) -> bytes:
        explicit = self.sequence.to_bytes(8, "big")
        named = explicit + struct.pack(">BHH", kind, 0x0303, len(plaintext))
        self.sequence += 1
        sealed = explicit + AESGCM(self.key).encrypt(self.salt + explicit, plaintext, named)
        return struct.pack(">BHH", kind, 0x0303, len(sealed)) + sealed


def connect_13(context: ssl.SSLContext, plain: socket.socket, directory: Path) -> tuple[socket.socket, Client13]:
    """Shake hands over `plain`. Returns: the bare socket, and what makes records for it."""
    log = KeyLog(context, directory / f"keys-{plain.fileno()}")
    with context.wrap_socket(plain, server_hostname=plain.getpeername()[0]) as connection:
        found = connection.cipher()
        assert found is not None
        return socket.socket(fileno=connection.detach()), log.client_13(found[0])


class KeyLog:
    """The key log of a context, which is for one connection."""

    def __init__(self, context: ssl.SSLContext, path: Path) -> None:
        context.keylog_filename = str(path)
        self._path = path

    def client_13(self, cipher: str) -> Client13:
        """`cipher`: its name, of a connection of TLS 1.3 that has sent no data."""
        size, hash_name = (16, "sha256") if "AES_128" in cipher else (32, "sha384")
        return Client13(hash_name, size, self._secret("CLIENT_TRAFFIC_SECRET_0"))

    def client_12(self, server_random: bytes) -> Client12:
        """The connection has AES-128-GCM with SHA-256, and has sent no data."""
        client_random, master = self._line("CLIENT_RANDOM")
        block = prf(master, b"key expansion" + server_random + client_random, 40)  # keys, then salts, of both sides
        return Client12(block[:16], block[32:36])

    def _secret(self, label: str) -> bytes:
        return self._line(label)[1]

    def _line(self, label: str) -> tuple[bytes, bytes]:
        (line,) = (line for line in self._path.read_text().splitlines() if line.startswith(label + " "))
        random, secret = map(bytes.fromhex, line.split()[1:])
        return random, secret


def prf(secret: bytes, seed: bytes, size: int) -> bytes:
    """The pseudo-random function of TLS 1.2 with SHA-256; the seed begins with its label."""
    made, link = b"", seed
    while len(made) < size:
        link = hmac.digest(secret, link, "sha256")
        made += hmac.digest(secret, link + seed, "sha256")
    return made[:size]
