"""What a slave asks its master before it takes bytes."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.remoting.signature import Credentials, is_signed
from rocketpy.replication import master_log
from rocketpy.replication.connection import connect
from rocketpy.replication.errors import MasterUnusable
from rocketpy.replication.master_log import Caller, MasterLog, ask_master
from rocketpy.replication.versions import Versions
from tests.support.fake_master import FakeMaster


def test_the_log_of_a_master() -> None:
    with FakeMaster(1000, begin=3000, log=bytes(500)) as master:
        assert ask_master(master.address, 5.0) == MasterLog(1000, 3000, 3500)


@pytest.mark.parametrize(
    ("more", "address"),
    [
        ("brokerIP2=10.0.0.5\nhaListenPort=10912", "10.0.0.5:10912"),
        ("brokerIP2=fd00::5\nhaListenPort=10912", "[fd00::5]:10912"),
        ("brokerIP2=10.0.0.5", None),
        ("haListenPort=10912", None),
        ("brokerIP2=10.0.0.5\nhaListenPort=many", None),
    ],
)
def test_where_slaves_are_to_dial(more: str, address: str | None) -> None:
    with FakeMaster(1000) as master:
        master.more = more
        assert ask_master(master.address, 5.0).ha_address == address


def test_questions_are_signed_with_credentials() -> None:
    with FakeMaster(1000) as master:
        ask_master(master.address, 5.0, Caller(credentials=Credentials("broker-a", "12345678")))
        assert [request.ext_field("AccessKey") for request in master.requests] == ["broker-a"] * 3
        assert all(is_signed(request, "12345678") for request in master.requests)


def test_a_refusal_is_told() -> None:
    with FakeMaster(1000) as master:
        master.code = 16
        with pytest.raises(MasterUnusable, match="code 16 for GET_BROKER_CONFIG: refused"):
            ask_master(master.address, 5.0)


def test_a_long_refusal_is_cut() -> None:
    """Fault: A master that refused with a long remark wrote all of it to the log of a slave, with line ends."""
    with FakeMaster(1000) as master:
        master.code, master.remark = 16, "no\n<0>" + "x" * 10_000
        with pytest.raises(MasterUnusable, match=r"GET_BROKER_CONFIG: no\\n<0>xxx") as refused:
            ask_master(master.address, 5.0)
        assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("begin", "end", "file_size"),
    [
        ("-1", "5", "1000"),
        ("0", str(2**63), "1000"),
        ("0", "9" * 5000, "1000"),
        ("0", "\u0661", "1000"),
        ("5", "4", "1000"),
        ("0", "5", "0"),
        ("0", "5", "1e3"),
    ],
)
def test_a_log_that_cannot_be_is_refused(begin: str, end: str, file_size: str) -> None:
    with FakeMaster(1000) as master:
        master.numbers = file_size, begin, end
        with pytest.raises(MasterUnusable, match="does not tell where its log begins and ends"):
            ask_master(master.address, 5.0)


def test_both_answers_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that sends a byte from time to time does not hold the worker."""
    now = [0.0]

    class Slow:
        def recv(self, size: int) -> bytes:
            now[0] += 1.0
            return b"\0\0\3\xe8\0\0"[int(now[0]) - 1 :][:1]  # the length of a frame

        def sendall(self, data: bytes) -> None: ...

        def settimeout(self, timeout_s: float) -> None:
            assert 0 < timeout_s <= 5.0

        def __enter__(self) -> Slow:
            return self

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(master_log, "connect", lambda address, timeout_s, tls: Slow())
    monkeypatch.setattr(master_log.time, "monotonic", lambda: now[0])
    with pytest.raises(MasterUnusable, match="no whole answer in time"):
        ask_master("a:1", 5.0)
    assert now[0] == 4.0 or now[0] == 5.0


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (None, None),
        (b'{"version":2}', Versions(2, 2)),
        (b'{"version":2,"lowest":2,"highest":7}', Versions(2, 7)),
    ],
)
def test_which_frames_it_speaks(body: bytes | None, version: Versions | None) -> None:
    """A broker of the reference does not support the question."""
    with FakeMaster(1000) as master:
        master.version = body
        assert ask_master(master.address, 5.0).versions == version


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"version":0}', b'{"version":"1"}', b'{"version":true}'])
def test_an_answer_that_names_no_version(body: bytes) -> None:
    with FakeMaster(1000) as master:
        master.version = body
        with pytest.raises(MasterUnusable, match="does not tell"):
            ask_master(master.address, 5.0)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "localhost:99999"])
def test_nobody_there(address: str) -> None:
    with pytest.raises(MasterUnusable, match="cannot connect"):
        connect(address, 5.0)
