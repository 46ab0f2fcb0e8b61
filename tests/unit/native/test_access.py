"""Signatures and the table of accounts in C, against rocketpy.remoting.signature and rocketpy.broker."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("rocketpy.native._rocketpy", reason="the table of accounts is C")

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.broker.fast_path.shared_access import SharedAccess
from rocketpy.codes import RequestCode
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.signature import Credentials, is_signed, sign
from tests.support.cases import cases

OWN = Account("access-key", "secret-key")
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
VALUES = st.text(st.characters(codec="utf-8"), max_size=300)
FIELDS = st.dictionaries(NAMES, VALUES, max_size=12)
BODIES = st.binary(max_size=300)


@pytest.fixture(params=[False, True], ids=["instructions", "portable"], autouse=True)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    lib.rp_sha1_force_portable(request.param)
    yield
    lib.rp_sha1_force_portable(0)


Content = tuple[bytes, bytes, bytes]  # secret key, edge, body


def hmacs_of(contents: Sequence[Content]) -> list[bytes]:
    """Codes that are made at once, each of an edge and a body."""
    jobs, kept = ffi.new("rp_hmac_job[]", len(contents)), []
    for job, (secret, edge, body) in zip(jobs, contents, strict=True):
        key, room = ffi.new("rp_hmac_key *"), ffi.new("uint8_t[]", len(edge) + lib.RP_HMAC_ROOM)
        lib.rp_hmac_key_make(key, secret, len(secret))
        ffi.memmove(room, edge, len(edge))
        kept += [key, room, ffi.from_buffer(body)]
        job.key, job.edge, job.edge_size, job.body, job.body_size = key, room, len(edge), kept[-1], len(body)
    lib.rp_hmac(jobs, len(contents))
    return [bytes(job.code) for job in jobs]


def standard(contents: Sequence[Content]) -> list[bytes]:
    return [hmac.digest(secret, edge + body, "sha1") for secret, edge, body in contents]


class Parsed:
    """A request as the codec reads it."""

    def __init__(self, frame: bytes) -> None:
        self._data = ffi.from_buffer(frame)
        self.frame: Any = ffi.new("rp_frame *")
        self.header: Any = ffi.new("rp_header *")
        assert lib.rp_frame_cut(self._data, len(frame), 1 << 24, self.frame) == 0
        self.status = lib.rp_header_parse(
            self.frame.serialize_type, self.frame.header, self.frame.header_size, self.header
        )

    def is_signed(self, secret: str) -> bool:
        return self.status == 0 and are_signed([self], [secret]) == [True]

    def signer(self, access: SharedAccess) -> Any:
        signer = ffi.new("rp_signer *", {"access": access.pointer})
        lib.rp_access_identify(access.pointer, self.header, self.frame, signer, 1)
        return signer


def are_signed(requests: Sequence[Parsed], secrets: Sequence[str]) -> list[bool]:
    """Whether each is signed with its secret key; checked together."""
    asked = ffi.new("rp_signed[]", len(requests))
    for one, request, secret in zip(asked, requests, secrets, strict=True):
        one.header, one.frame, one.is_valid = request.header, request.frame, 1
        lib.rp_hmac_key_make(ffi.addressof(one, "key"), secret.encode(), len(secret.encode()))
    done = 0
    while done < len(requests):
        more = int(lib.rp_signatures_check(asked + done, len(requests) - done))
        assert more > 0
        done += more
    return [bool(one.is_valid) for one in asked]


def request_of(fields: dict[str, str], body: bytes, kind: SerializeType = SerializeType.JSON) -> RemotingCommand:
    request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, 1, body=body, serialize_type=kind)
    for name, value in fields.items():
        request.add_ext_field(name, value)
    return request


def signed(account: Account, **fields: str) -> Parsed:
    request = request_of(fields, b"body")
    sign(request, Credentials(account.access_key, account.secret_key))
    return Parsed(request.encode())


PIECES = st.binary(max_size=200)
CONTENTS = st.lists(st.tuples(PIECES, PIECES, PIECES), min_size=1, max_size=int(lib.RP_HMAC_JOBS))


@given(CONTENTS)
def test_codes_are_those_of_the_standard_library(contents: list[Content]) -> None:
    assert hmacs_of(contents) == standard(contents)


@cases("size", [0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 128, 1000, 100_000])
def test_codes_at_the_ends_of_blocks(size: int) -> None:
    data = os.urandom(size)
    contents = [(b"k" * size, data, b""), (b"k" * size, b"", data)]
    assert hmacs_of(contents) == standard(contents)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 15, 16])
def test_codes_of_all_sizes_that_are_made_at_once(count: int) -> None:
    """Bodies of 0 to 300 bytes, behind edges of other sizes, in every lane: those beside them end earlier or later."""
    data = os.urandom(5000)
    for size in range(301):
        sizes = [(lane * 37 % 130, (size + lane * 61) % 301) for lane in range(count)]
        contents = [(data[lane : lane + 9], data[:edge], data[1000:][:body]) for lane, (edge, body) in enumerate(sizes)]
        assert hmacs_of(contents) == standard(contents)


@pytest.mark.parametrize("count", [5, 16])
def test_a_code_depends_on_its_own_content_only(count: int) -> None:
    contents = [(b"secret", b"edge", bytes([lane]) * (lane * 100)) for lane in range(count)]
    whole = standard(contents)
    for changed in range(count):
        others = list(contents)
        others[changed] = (b"secret", b"edge", b"another")
        found = hmacs_of(others)
        assert found[:changed] + found[changed + 1 :] == whole[:changed] + whole[changed + 1 :]
        assert found[changed] != whole[changed]


@given(FIELDS, BODIES, st.sampled_from(SerializeType))
def test_what_python_signs_is_signed(fields: dict[str, str], body: bytes, kind: SerializeType) -> None:
    request = request_of(fields, body, kind)
    sign(request, Credentials("access-key", "secret-key"))
    frame = request.encode()
    parsed = Parsed(frame)
    if parsed.status == 0 and max(map(len, fields.values()), default=0) < 1000:
        assert parsed.is_signed("secret-key")
    assert not parsed.is_signed("secret-kez")


@given(FIELDS, BODIES, st.sampled_from(SerializeType), st.data())
def test_what_is_not_signed_for_python_is_not_signed(
    fields: dict[str, str], body: bytes, kind: SerializeType, data: st.DataObject
) -> None:
    """A frame with one byte changed: the header may become any other."""
    request = request_of(fields, body, kind)
    sign(request, Credentials("access-key", "secret-key"))
    frame = bytearray(request.encode())
    at = data.draw(st.integers(8, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    parsed = Parsed(bytes(frame))
    if parsed.is_signed("secret-key"):
        assert is_signed(RemotingCommand.decode(bytes(frame)), "secret-key")


def request_signed_with(secret: str, fields: dict[str, str], body: bytes) -> Parsed:
    request = request_of(fields, body)
    sign(request, Credentials("access-key", secret))
    return Parsed(request.encode())


@given(st.lists(st.tuples(st.booleans(), FIELDS, BODIES), min_size=1, max_size=40))
def test_requests_that_are_checked_together(parts: list[tuple[bool, dict[str, str], bytes]]) -> None:
    """Each has its own result, whatever is beside it: wrong signatures, other sizes, unusual forms."""
    secrets = ["secret-key" if is_right else "another-key" for is_right, _, _ in parts]
    requests = [request_signed_with(secret, *rest) for secret, (_, *rest) in zip(secrets, parts, strict=True)]
    requests = [request if request.status == 0 else request_signed_with("none", {}, b"") for request in requests]
    alone = [request.is_signed("secret-key") for request in requests]
    assert are_signed(requests, ["secret-key"] * len(requests)) == alone
    assert not any(found and not is_right for found, (is_right, _, _) in zip(alone, parts, strict=True))


def test_a_request_without_values_behind_a_full_buffer() -> None:
    """It needs room for padding as well; the two before it have left none."""
    together = int(lib.RP_HMAC_JOBS) * int(lib.RP_HMAC_ROOM)
    key_size = len("access-key")
    sizes = [8192 - key_size, together - 2 * int(lib.RP_HMAC_ROOM) - key_size]
    requests = [request_signed_with("secret-key", {"i": "v" * size}, b"body") for size in sizes]
    requests.append(Parsed(request_of({"Signature": "s" * 28}, b"body").encode()))
    asked = ffi.new("rp_signed[]", [{"header": one.header, "frame": one.frame} for one in requests])
    assert lib.rp_signatures_check(asked, len(requests)) == 2


def test_long_headers_that_are_checked_together() -> None:
    """More bytes than there is room for at once."""
    sizes = [8000, 10, 4000, 4000, 9000, 8000, 100, 3000, 3000, 3000, 3000, 8100]
    requests = [request_signed_with("secret-key", {"i": "v" * size}, b"body") for size in sizes]
    assert are_signed(requests, ["secret-key"] * len(sizes)) == [size != 9000 for size in sizes]


@pytest.mark.parametrize("text", ['{"b":"t","b":"u"}', '{"b":"t","b":null,"b":"u"}', '{"ü":"1"}'])
def test_unusual_fields_are_left_to_python(text: str) -> None:
    fields = json.loads(text)
    request = request_of(fields, b"")
    sign(request, Credentials("access-key", "secret-key"))
    signature = (request.ext_fields or {})["Signature"]
    ours = text[:-1] + f',"AccessKey":"access-key","Signature":"{signature}"}}'
    header = f'{{"code":310,"opaque":1,"extFields":{ours}}}'.encode()
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    assert not Parsed(frame).is_signed("secret-key")


def test_the_table_knows_its_accounts_until_they_are_replaced() -> None:
    access = SharedAccess()
    others = [Account(f"account-{number}", f"secret-{number}") for number in range(500)]
    access.publish(Accounts.of([OWN, *others]))
    assert signed(OWN, b="t").signer(access).version == access.version
    assert signed(others[77], b="t").signer(access).version == access.version
    assert signed(Account("access-key", "another-secret"), b="t").signer(access).version == 0
    assert signed(Account("nobody-knows", "secret-key"), b="t").signer(access).version == 0
    access.publish(Accounts.of(others))
    assert signed(OWN, b="t").signer(access).version == 0


def test_accounts_that_do_not_fit_are_left_to_python() -> None:
    access, long = SharedAccess(), Account("k" * 61, "secret-key")
    many = [Account(f"account-{number}", "secret-key") for number in range(lib.RP_ACCESS_ACCOUNTS_MAX + 10)]
    access.publish(Accounts.of([long, *many]))
    assert signed(long, b="t").signer(access).version == 0
    assert signed(many[-1], b="t").signer(access).version == 0
    assert signed(many[0], b="t").signer(access).version == access.version
    found = access.read()
    assert found is not None and found[1].by_key["k" * 61] == long and len(found[1].by_key) == len(many) + 1


def is_allowed(access: SharedAccess, account: Account, code: int, topic: str, group: str) -> bool:
    parsed = signed(account, b=topic, a=group)
    signer = parsed.signer(access)
    names = topic.encode(), len(topic.encode()), group.encode(), len(group.encode())
    return bool(lib.rp_access_is_allowed(signer, code, *names))


def test_a_decision_is_for_one_code_account_topic_group_and_version() -> None:
    access, other = SharedAccess(), Account("another-key", "another-secret")
    access.publish(Accounts.of([OWN, other]))
    asked = (OWN, 310, "topic", "group")
    assert not is_allowed(access, *asked)
    access.allow(access.version, 310, OWN.access_key, "topic", "group")
    assert is_allowed(access, *asked)
    assert not is_allowed(access, other, 310, "topic", "group")
    assert not is_allowed(access, OWN, 320, "topic", "group")
    assert not is_allowed(access, OWN, 310, "topicg", "roup")
    assert not is_allowed(access, OWN, 310, "topic", "")
    access.publish(Accounts.of([OWN, other]))
    assert not is_allowed(access, *asked)


def test_names_that_are_too_long_have_no_decision() -> None:
    access = SharedAccess()
    access.publish(Accounts.of([OWN]))
    room = int(lib.RP_ACCESS_DECISION_MAX) - 24 - len(OWN.access_key) - len("group")
    for size, expected in ((room, True), (room + 1, False)):
        access.allow(access.version, 310, OWN.access_key, "t" * size, "group")
        assert is_allowed(access, OWN, 310, "t" * size, "group") is expected


def test_a_decision_that_is_being_replaced_is_none() -> None:
    access = SharedAccess()
    access.publish(Accounts.of([OWN]))
    access.allow(access.version, 310, OWN.access_key, "topic", "group")
    (place,) = [place for place in access.pointer.decisions if place.size]
    for lock, expected in ((place.lock + 1, False), (place.lock + 2, True)):
        place.lock = lock
        assert is_allowed(access, OWN, 310, "topic", "group") is expected


def test_decisions_are_bounded_and_the_latest_is_there() -> None:
    access = SharedAccess()
    access.publish(Accounts.of([OWN]))
    for number in range(3 * lib.RP_ACCESS_DECISIONS):
        access.allow(access.version, 310, OWN.access_key, f"topic-{number}", "group")
    last = [f"topic-{3 * lib.RP_ACCESS_DECISIONS - 1 - back}" for back in range(2)]
    assert all(is_allowed(access, OWN, 310, topic, "group") for topic in last)
    asked = range(0, 3 * lib.RP_ACCESS_DECISIONS, 97)
    there = sum(is_allowed(access, OWN, 310, f"topic-{number}", "group") for number in asked)
    assert 0 < there < len(asked) / 2


def test_nothing_is_certain_while_accounts_are_replaced() -> None:
    access = SharedAccess()
    access.publish(Accounts.of([OWN]))
    access.allow(access.version, 310, OWN.access_key, "topic", "group")
    signer = signed(OWN, b="topic", a="group").signer(access)
    lib.rp_access_begin(access.pointer)
    assert access.version % 2 == 1 and access.read() is None
    assert not lib.rp_access_is_allowed(signer, 310, b"topic", 5, b"group", 5)
    assert signed(OWN, b="topic", a="group").signer(access).version == 0
