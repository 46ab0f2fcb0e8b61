"""A slave introduces itself to a master of rocketpy that the test plays."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.replication.errors import CannotFollow, Diverged, MasterUnusable
from rocketpy.replication.handshake_messages import Extent, Group, Refusal, Welcome
from rocketpy.replication.secret import Nonces
from rocketpy.replication.slave_handshake import introduce
from rocketpy.replication.stream import ByteReader
from tests.support.own_frames import CHALLENGE, DATA, HELLO, MAGIC, NONCE, REFUSE, WELCOME, frame, json_frame, proof_of

FILE_SIZE = 65_536
LOG = random.Random(5).randbytes(3 * FILE_SIZE)
SECRET = b"a secret of 20 bytes"
FULL_WELCOME: dict[str, Any] = {
    "version": 2,
    "begin": 0,
    "end": len(LOG),
    "epochs": [],
    "start": 0,
    "truncate": None,
    "tail": None,
    "proof": "",
}


class Played:
    """Reads the magic and HELLO, and answers what `answer` makes of HELLO."""

    def __init__(self, challenge: bytes, answer: Callable[[dict[str, Any]], bytes]) -> None:
        self.ours, self._theirs = socket.socketpair()
        self._theirs.settimeout(60)
        self.magic, self.hello = b"", {}
        self._challenge, self._answer = challenge, answer
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._theirs, contextlib.suppress(ConnectionError):  # the slave closes on poison
            self.magic = self._theirs.recv(8, socket.MSG_WAITALL)
            if not self._challenge:
                return
            self._theirs.sendall(self._challenge)
            head = self._theirs.recv(5, socket.MSG_WAITALL)
            if len(head) < 5:
                return
            assert head[4] == HELLO
            self.hello = json.loads(self._theirs.recv(int.from_bytes(head[:4], "big") - 1, socket.MSG_WAITALL))
            self._theirs.sendall(self._answer(self.hello))

    def introduce(self, own: Extent, master: Extent | None = None, secret: bytes = b"") -> Welcome:
        group = Group(cluster="DefaultCluster", broker_name="broker-a", file_size=FILE_SIZE, secret=secret)
        reader = ByteReader(self.ours, 60.0, lambda: None)

        def read_log(at: int, size: int) -> bytes:
            assert at // FILE_SIZE == (at + size - 1) // FILE_SIZE
            return LOG[at : at + size]

        try:
            return introduce(self.ours, reader, group, 3, own, master or Extent(0, len(LOG)), read_log)
        finally:
            self.ours.close()
            self._thread.join()


GREETING = json_frame(CHALLENGE, version=2, nonce=NONCE)
Play = Callable[..., Played]


@pytest.fixture
def play() -> Iterator[Play]:
    played: list[Played] = []

    def start(answer: Callable[[dict[str, Any]], bytes], challenge: bytes = GREETING) -> Played:
        played.append(Played(challenge, answer))
        return played[-1]

    yield start
    for one in played:
        one.ours.close()


def welcome(**changes: Any) -> bytes:
    return json_frame(WELCOME, **(FULL_WELCOME | changes))


def test_an_empty_slave_begins_where_the_master_says(play: Play) -> None:
    master = play(lambda _: welcome(start=FILE_SIZE, begin=FILE_SIZE))
    assert master.introduce(Extent(0, 0)) == Welcome(FILE_SIZE, len(LOG), master_begin=FILE_SIZE, version=2)
    assert master.magic == MAGIC
    assert master.hello["tail"] is None and master.hello["end"] == 0 and master.hello["brokerId"] == 3


@pytest.mark.parametrize(("end", "tail"), [(100, 0), (FILE_SIZE + 5, 5), (3 * FILE_SIZE, 2 * FILE_SIZE)])
def test_the_end_of_the_slave_s_log_is_described(play: Play, end: int, tail: int) -> None:
    master = play(lambda hello: welcome(start=hello["end"]))
    assert master.introduce(Extent(0, end)).start == end
    assert master.hello["tail"] == {"begin": tail, "crc": zlib.crc32(LOG[tail:end])}


def test_of_what_the_master_has_deleted_nothing_is_compared(play: Play) -> None:
    master = play(lambda hello: welcome(start=hello["end"]))
    master.introduce(Extent(0, FILE_SIZE + 5), Extent(FILE_SIZE, len(LOG)))
    assert master.hello["tail"]["begin"] == FILE_SIZE


def proved(hello: dict[str, Any], role: str = "master", **changes: Any) -> dict[str, Any]:
    """The fields of a WELCOME of a master that knows the secret."""
    said = FULL_WELCOME | changes
    return said | {"proof": proof_of(SECRET, role, NONCE, said, hello["nonce"])}


def test_both_proofs(play: Play) -> None:
    master = play(lambda hello: welcome(**proved(hello, epochs=[[3, 5]], tail={"begin": 1, "crc": 2})))
    assert master.introduce(Extent(0, 0), secret=SECRET).start == 0
    assert master.hello["proof"] == proof_of(SECRET, "slave", NONCE, master.hello, master.hello["nonce"])


@pytest.mark.parametrize("proof", ["", "00", None])
def test_a_master_without_the_secret_is_not_followed(play: Play, proof: str | None) -> None:
    """Not even if it sends the slave's own proof back."""
    master = play(lambda hello: welcome(proof=hello["proof"] if proof is None else proof))
    with pytest.raises(MasterUnusable, match="not proved that it knows the secret"):
        master.introduce(Extent(0, 0), secret=SECRET)


@pytest.mark.parametrize(
    "change",
    [
        {"begin": 1},
        {"end": len(LOG) + 1},
        {"start": 50},
        {"truncate": 50},
        {"epochs": [[4, 5]]},
        {"tail": None},
        {"tail": {"begin": 1, "crc": 3}},
        {"version": 1},
    ],
)
def test_a_welcome_that_was_changed_on_the_way_is_not_believed(play: Play, change: dict[str, Any]) -> None:
    """Nor does it stop the slave for good: it tries again.
    Fault: A changed WELCOME or a forged REFUSE was believed and could stop a slave for good."""
    master = play(
        lambda hello: welcome(**(proved(hello, epochs=[[3, 5]], tail={"begin": 1, "crc": 2}, start=100) | change))
    )
    with pytest.raises(MasterUnusable, match="not proved that it knows the secret"):
        master.introduce(Extent(0, 100), secret=SECRET)


def test_a_refusal_stops_the_slave_if_it_is_proved(play: Play) -> None:
    def refuse(hello: dict[str, Any]) -> bytes:
        return Refusal("diverged", "it differs").encode(SECRET, Nonces(NONCE, hello["nonce"]))

    with pytest.raises(Diverged, match=r"refused this slave \(diverged\): it differs"):
        play(refuse).introduce(Extent(0, 100), secret=SECRET)
    forged = json_frame(REFUSE, code="diverged", reason="it differs", proof="")
    with pytest.raises(MasterUnusable, match=r"refused this slave \(diverged\): it differs; it has not proved"):
        play(lambda _: forged).introduce(Extent(0, 100), secret=SECRET)


def test_a_master_of_another_version_is_asked_again(play: Play) -> None:
    with pytest.raises(MasterUnusable, match="answers in version 3 of replication, and was asked in 2"):
        play(lambda _: welcome(version=3)).introduce(Extent(0, 0))


def test_a_refusal_names_its_reason_in_one_line(play: Play) -> None:
    master = play(lambda _: json_frame(REFUSE, code="diverged", reason="it\ndiffers", proof=""))
    with pytest.raises(CannotFollow, match=r"refused this slave \(diverged\): it\?differs"):
        master.introduce(Extent(0, 100))


def test_a_master_that_cannot_tell_now_is_asked_again(play: Play) -> None:
    with pytest.raises(MasterUnusable, match="cannot serve this slave now"):
        play(lambda _: json_frame(REFUSE, code="later", reason="busy", proof="")).introduce(Extent(0, 100))


@pytest.mark.parametrize("changes", [{"start": 99}, {"start": 101}, {"truncate": 50}, {"start": 10**9}])
def test_a_start_elsewhere_is_refused(play: Play, changes: dict[str, Any]) -> None:
    with pytest.raises(CannotFollow, match="wants to begin at"):
        play(lambda _: welcome(**({"start": 100} | changes))).introduce(Extent(0, 100))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\0",
        b"\xff" * 10,
        b"\0\0\0\0\3",
        frame(WELCOME, b"{}"),
        frame(WELCOME, b"[" * 60_000),
        frame(DATA, bytes(24)),
        json_frame(HELLO, **FULL_WELCOME),
        welcome(start="0"),
        welcome(start=True),
        welcome(start=-1),
        welcome(proof=1),
        welcome(tail=5),
        welcome(tail={"begin": 0, "crc": 2**32}),
        json_frame(REFUSE, code="diverged", reason="x"),
        json_frame(REFUSE, code=1, reason="x"),
    ],
)
def test_poison_instead_of_welcome(play: Play, answer: bytes) -> None:
    with pytest.raises(MasterUnusable):
        play(lambda _: answer).introduce(Extent(0, 0))


@pytest.mark.parametrize(
    "challenge",
    [b"", b"\xff" * 100, frame(CHALLENGE, b"{}"), json_frame(CHALLENGE, nonce="x"), json_frame(WELCOME, nonce=NONCE)],
)
def test_poison_instead_of_challenge(play: Play, challenge: bytes) -> None:
    def never(_: dict[str, Any]) -> bytes:
        raise AssertionError

    master = play(never, challenge)
    with pytest.raises(MasterUnusable):
        master.introduce(Extent(0, 0))
    assert master.hello == {}
