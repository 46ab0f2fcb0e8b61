"""Signatures of frames that are read together: each has its own result, whatever is before or behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.broker.fast_path.shared_access import SharedAccess
from rocketpy.codes import RequestCode
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import SEND_REQUEST
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.signature import Credentials, sign
from tests.support.fast_path import FastPath, drain
from tests.support.wire import send_request

OWN, OTHER = Credentials("own-account", "secret-1"), Credentials("other-account", "secret-2")
STOLEN, UNKNOWN = Credentials("own-account", "guessed"), Credentials("nobody-knows", "secret-1")
SIGNERS = (OWN, STOLEN, OWN, OTHER, UNKNOWN, None)
TOGETHER = int(lib.RP_HMAC_JOBS)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[FastPath]:
    """A codec that knows two accounts, of which one may send to T."""
    path, access = FastPath(tmp_path), SharedAccess()
    access.publish(Accounts.of([Account(one.access_key, one.secret_key) for one in (OWN, OTHER)]))
    access.allow(access.version, RequestCode.SEND_MESSAGE_V2, OWN.access_key, "T", "PG")
    path._keep += [access]
    path.codec_options = {"access": access.pointer}
    lib.rp_codec_close(path.codec)
    path.codec = path.open_codec()
    yield path
    path.close()


def send(credentials: Credentials | None, body: bytes, kind: SerializeType = SerializeType.JSON) -> RemotingCommand:
    request = send_request("T", body)
    request.serialize_type = kind
    if credentials is not None:
        sign(request, credentials)
    return request


def passed_on(path: FastPath) -> list[tuple[bytes, bool]]:
    """Body of each send in the ring, and whether it was certainly allowed."""
    reader = lib.rp_ring_reader_open(path.to_send)
    found = []
    for kind, data in drain(reader):
        request = SEND_REQUEST.read(bytearray(data))
        start = int(ffi.sizeof("rp_msg_send")) + request.topic_size + request.group_size
        start += request.default_topic_size + request.properties_size
        assert kind == lib.RP_MSG_SEND
        found.append((data[start : start + request.body_size], not request.flags & lib.RP_REQUEST_UNCHECKED))
    lib.rp_ring_reader_close(reader)
    return found


def check(path: FastPath, parts: Sequence[tuple[Credentials | None, bytes]], kind: SerializeType) -> None:
    stream = b"".join(send(signer, body, kind).encode() for signer, body in parts)
    assert path.read_together(stream) == (lib.RP_OK, len(parts))
    assert passed_on(path) == [(body, signer is OWN) for signer, body in parts]


@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("count", [1, 2, 4, 5, 6, TOGETHER - 1, TOGETHER, TOGETHER + 1, 3 * TOGETHER])
def test_frames_of_one_read(path: FastPath, count: int, kind: SerializeType) -> None:
    random = Random(count)
    for _ in range(5):
        check(path, [(random.choice(SIGNERS), random.randbytes(random.randrange(2000))) for _ in range(count)], kind)


@pytest.mark.parametrize("count", [2, TOGETHER, TOGETHER + 1])
@pytest.mark.parametrize("wrong", [STOLEN, UNKNOWN, OTHER, None], ids=["stolen", "unknown", "other", "unsigned"])
def test_one_wrong_signature_in_each_place(path: FastPath, wrong: Credentials | None, count: int) -> None:
    for place in range(count):
        parts = [(wrong if at == place else OWN, b"the same body") for at in range(count)]
        check(path, parts, SerializeType.JSON)
        parts = [(OWN if at == place else wrong, b"the same body") for at in range(count)]
        check(path, parts, SerializeType.JSON)


def size_of_values(request: RemotingCommand) -> int:
    """Bytes of all that is signed but the body; the core takes VALUES_MAX of csrc/wire/signature.c."""
    return sum(len(value.encode()) for name, value in (request.ext_fields or {}).items() if name != "Signature")


def with_values(size: int) -> RemotingCommand:
    """A request whose values have so many bytes."""
    base = size_of_values(send(OWN, b"body"))
    request = send_request("T", b"body", properties="x" * (size - base))
    sign(request, OWN)
    assert size_of_values(request) == size
    return request


@pytest.mark.parametrize("second", [*range(2480, 2700, 8), 8191])
def test_the_room_for_values_of_one_read(path: FastPath, second: int) -> None:
    """Fault: Where two requests left less than the room for a padding, a third was written behind the buffer."""
    stream = b"".join(with_values(size).encode() for size in (8192, second, 8192, 8192))
    assert path.read_together(stream) == (lib.RP_OK, 4)
    assert passed_on(path) == [(b"body", True)] * 4


def test_a_signature_of_the_frame_beside_it(path: FastPath) -> None:
    """Two requests that have each other's signature, in both orders."""
    bodies = [b"one", b"another"]
    requests = [send(OWN, body) for body in bodies]
    for request, other in zip(requests, bodies[::-1], strict=True):
        request.body = other
    for order in (requests, requests[::-1]):
        for filled in range(TOGETHER):
            stream = b"".join(request.encode() for request in [*order, *[send(OWN, b"right")] * filled])
            assert path.read_together(stream)[0] == lib.RP_OK
            assert [is_allowed for _, is_allowed in passed_on(path)] == [False, False] + [True] * filled


def test_frames_behind_a_full_ring_are_checked_again(path: FastPath) -> None:
    """Those that found no room come again; then others lie at their place in the buffer."""
    bodies = [bytes([number]) * 60_000 for number in range(TOGETHER)]
    right = [send(OWN, body).encode() for body in bodies]
    wrong = [send(STOLEN, body).encode() for body in bodies]
    taken = TOGETHER
    while taken == TOGETHER:
        status, taken = path.read_together(b"".join(right))
    assert status == lib.RP_FULL
    passed_on(path)
    assert path.read_together(b"".join(wrong))[1] > 0
    assert not any(is_allowed for _, is_allowed in passed_on(path))
    assert path.read_together(b"".join(right))[1] > 0
    assert all(is_allowed for _, is_allowed in passed_on(path))


def test_a_bad_frame_ends_the_connection_behind_good_ones(path: FastPath) -> None:
    frames = [send(OWN, b"first").encode(), b"\0\0\0\x06\0\0\0\x02[]", send(OWN, b"last").encode()]
    assert path.read_together(b"".join(frames)) == (lib.RP_INVALID, 1)
    assert passed_on(path) == [(b"first", True)]
