"""Two versions of replication beside each other: the last release's bytes are frozen here, as it wrote them."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.replication.errors import MasterUnusable
from rocketpy.replication.frames import Fields, FrameInvalid
from rocketpy.replication.handshake_messages import Extent, Group, Hello, Refusal, Tail, Welcome
from rocketpy.replication.handshake_rules import encode_challenge
from rocketpy.replication.secret import Nonces
from rocketpy.replication.slave_handshake import introduce
from rocketpy.replication.stream import ByteReader
from rocketpy.replication.versions import OWN, Versions, common, no_common_version, read_versions
from tests.support.master_rig import MasterRig
from tests.support.own_frames import CHALLENGE, HELLO, NONCE, REFUSE, WELCOME, json_frame, split
from tests.support.own_slave import SECRET, OwnSlave

V2 = Versions(2, 2)
GROUP = Group(cluster="c", broker_name="b", file_size=65_536, secret=SECRET)
OTHER_NONCE = "f" * 32
HELLO_2 = (
    b'{"version":2,"cluster":"c","brokerName":"b","brokerId":3,"member":"","incarnation":"","fileSize":65536,'
    b'"begin":0,"end":9,"tail":{"begin":0,"crc":7},"epochs":[],"nonce":"0123456789abcdef0123456789abcdef","proof":"%s"}'
)
WELCOME_2 = b'{"version":2,"begin":0,"end":9,"epochs":[],"start":9,"truncate":null,"tail":null,"proof":"%s"}'
REFUSE_2 = b'{"code":"group","reason":"it belongs elsewhere","proof":"%s"}'


def hello(version: int, versions: Versions) -> Hello:
    return Hello(version, "c", "b", 3, 65_536, Extent(0, 9), Tail(0, 7), NONCE, versions=versions)


def test_the_frames_of_version_2_are_those_of_the_last_release() -> None:
    nonces = Nonces(OTHER_NONCE, NONCE)
    proofs = {
        "HELLO": b"ca55b6c22cecacfe9cd6f1b9616fa2ca4804571fb6a912dd018ae3a0aadbdb15",
        "WELCOME": b"cd960aa67d32d7f41038d9760dcd33974403d270a28627b987b721f128c4589b",
        "REFUSE": b"69035c3d1adbc44ba3cb58c4d8cccaf97ced47a90d9fb0a1cc474ee636af36e2",
    }
    assert hello(2, OWN).encode(SECRET, OTHER_NONCE)[5:] == HELLO_2 % proofs["HELLO"]
    assert Welcome(9, 9, version=2).encode(SECRET, nonces)[5:] == WELCOME_2 % proofs["WELCOME"]
    assert Refusal("group", "it belongs elsewhere").encode(SECRET, nonces)[5:] == REFUSE_2 % proofs["REFUSE"]


def test_a_slave_of_the_last_release_finds_its_fields_in_challenge() -> None:
    """It takes `nonce`; `version` is its own."""
    ((_, body),), _ = split(encode_challenge(NONCE))
    assert json.loads(body) == {"version": 2, "nonce": NONCE, "lowest": 2, "highest": 3}


@pytest.mark.parametrize(
    ("one", "other", "version"),
    [
        (V2, OWN, 2),
        (OWN, OWN, 3),
        (OWN, Versions(3, 4), 3),
        (Versions(2, 9), Versions(1, 5), 5),
        (V2, Versions(3, 4), None),
        (Versions(5, 6), OWN, None),
    ],
)
def test_the_highest_common_version(one: Versions, other: Versions, version: int | None) -> None:
    assert common(one, other) == common(other, one) == version


def test_the_remedy_names_the_older_side() -> None:
    assert "upgrade the slave" in no_common_version(V2, Versions(3, 4))
    assert "upgrade the master" in no_common_version(Versions(3, 4), V2)


@pytest.mark.parametrize("said", [{}, {"highest": 3}, {"lowest": 4, "highest": 3}, {"lowest": 2, "highest": 256}])
def test_a_range_that_is_none(said: dict[str, Any]) -> None:
    with pytest.raises(FrameInvalid):
        read_versions(Fields(json.dumps(said).encode()))


# --- this slave, a master of another version --------------------------------------------------------------------------


class OldMaster:
    """Answers the handshake with the frames that a test gives; keeps what the slave sent."""

    def __init__(self, challenge: dict[str, Any], answers: bytes) -> None:
        self.slave, self._socket = socket.socketpair()
        self._socket.settimeout(60)
        self.magic, self.hello = b"", b""
        self._challenge, self._answers = challenge, answers
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._socket:
            self.magic = self._socket.recv(8, socket.MSG_WAITALL)
            self._socket.sendall(json_frame(CHALLENGE, **self._challenge))
            head = self._socket.recv(5, socket.MSG_WAITALL)
            assert head[4] == HELLO
            self.hello = self._socket.recv(int.from_bytes(head[:4], "big") - 1, socket.MSG_WAITALL)
            self._socket.sendall(self._answers)

    def introduce(self) -> Welcome:
        reader = ByteReader(self.slave, 60.0, lambda: None)
        group = attrs.evolve(GROUP, secret=b"")
        try:
            with self.slave:
                return introduce(self.slave, reader, group, 3, Extent(0, 9), None, None)
        finally:
            self._thread.join()


def welcome_of(**changes: Any) -> bytes:
    fields = {"version": 2, "begin": 0, "end": 9, "epochs": [], "start": 9, "truncate": None, "tail": None, "proof": ""}
    return json_frame(WELCOME, **(fields | changes))


def test_a_master_of_the_last_release_gets_the_bytes_that_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    master = OldMaster({"version": 2, "nonce": OTHER_NONCE}, welcome_of())
    assert master.introduce().start == 9
    assert master.magic == bytes.fromhex("ff52504841000002")
    said = json.loads(master.hello)
    assert said["version"] == 2 and "highest" not in said and list(said) == list(json.loads(HELLO_2))


def test_a_master_of_this_release_gets_the_range() -> None:
    ranges = {"lowest": 2, "highest": 3}
    master = OldMaster({"version": 2, "nonce": OTHER_NONCE} | ranges, welcome_of(version=3, **ranges))
    assert master.introduce().version == 3
    assert json.loads(master.hello).items() >= {"version": 3, "lowest": 2, "highest": 3}.items()


def test_a_challenge_that_was_changed_on_the_way_is_noticed() -> None:
    changed = OldMaster(
        {"version": 2, "nonce": OTHER_NONCE, "lowest": 2, "highest": 3},
        welcome_of(version=3, lowest=2, highest=4),
    )
    with pytest.raises(MasterUnusable, match="CHALLENGE named versions 2 to 3, its WELCOME 2 to 4"):
        changed.introduce()


def test_a_master_without_a_common_version_is_named_with_the_remedy() -> None:
    """The slave says hello, so that the master can log the same; and tries again: it may be upgraded meanwhile."""
    refusal = json_frame(REFUSE, code="version", reason="it is too old", proof="")
    master = OldMaster({"version": 4, "nonce": OTHER_NONCE, "lowest": 4, "highest": 5}, refusal)
    with pytest.raises(MasterUnusable, match="slave speaks version 2 to 3 of replication, the master 4 to 5: upgrade"):
        master.introduce()
    assert json.loads(master.hello).items() >= {"version": 3, "lowest": 2, "highest": 3}.items()


# --- this master, a slave of another version --------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[MasterRig]:
    rig = MasterRig(tmp_path)
    yield rig
    rig.close()


def test_a_slave_of_the_last_release_is_answered_in_its_version(rig: MasterRig) -> None:
    """Fault: Brokers of two replication versions did not follow each other, so an upgrade stopped the group."""
    rig.append(1000)
    slave = OwnSlave(rig)  # its frames are of version 2
    kind, welcome = slave.say(b"")
    assert kind == WELCOME and welcome["version"] == 2 and "highest" not in welcome
    assert slave.log_from(0, 1000) == rig.log


def test_a_slave_of_this_release_is_answered_in_it(rig: MasterRig) -> None:
    rig.append(1000)
    slave = OwnSlave(rig)
    kind, welcome = slave.say(b"", version=3, lowest=2, highest=3)
    assert kind == WELCOME and (welcome["version"], welcome["lowest"], welcome["highest"]) == (3, 2, 3)
    assert slave.log_from(0, 1000) == rig.log


@pytest.mark.parametrize("magic", [1, 4, 255])
def test_a_slave_without_a_common_version_is_told_why(
    rig: MasterRig, caplog: pytest.LogCaptureFixture, magic: int
) -> None:
    """Whatever else its HELLO has; its magic names its lowest version."""
    caplog.set_level(logging.WARNING)
    connection = rig.connect()
    spoken = f'{{"version":{magic},"lowest":{magic},"highest":{magic},"new":[1]}}'.encode()
    rig.say_bytes(connection, bytes.fromhex("ff525048410000") + bytes([magic]))
    rig.say_bytes(connection, (len(spoken) + 1).to_bytes(4, "big") + bytes([HELLO]) + spoken)
    answers = b""

    def look() -> bool:
        nonlocal answers
        try:
            answers += connection.recv(65_536)
        except BlockingIOError:
            return False
        return len(split(answers)[0]) == 2

    rig.turn_until(look)
    (_, challenge), (kind, refusal) = split(answers)[0]
    reason = f"the slave speaks version {magic} of replication, the master 2 to 3: upgrade the "
    assert json.loads(challenge)["highest"] == 3 and kind == REFUSE
    assert json.loads(refusal)["code"] == "version" and reason in json.loads(refusal)["reason"]
    assert reason + ("slave" if magic < 2 else "master") in caplog.text


def test_the_range_of_version_3_is_proved() -> None:
    said = hello(3, OWN)
    assert Hello.read(said.encode(SECRET, OTHER_NONCE)[5:]).is_proved(SECRET, OTHER_NONCE)
    widened = json.loads(said.encode(SECRET, OTHER_NONCE)[5:]) | {"lowest": 1}
    assert not Hello.read(json.dumps(widened).encode()).is_proved(SECRET, OTHER_NONCE)
