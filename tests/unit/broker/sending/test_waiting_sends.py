"""Sends that wait on the slow path: their order, age and bounds, and what becomes of them when something fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.broker.sending.pending_sends import PENDING_BYTES_MAX, PENDING_SENDS_MAX
from rocketpy.broker.sending.slow_send import Refusal, Resend
from rocketpy.errors import StoreError
from tests.support.slow_path import FakeChannel, SlowPathRig


@pytest.fixture
def rig(tmp_path: Path) -> SlowPathRig:
    return SlowPathRig(tmp_path)


def admit(rig: SlowPathRig, *args: Any, **changes: Any) -> Any:
    return rig.broker._slow_send.admit(rig.send(*args, **changes))


def test_sends_of_a_connection_wait_behind_one_that_creates_a_topic(rig: SlowPathRig) -> None:
    """The new topic is on the disk before its first message is acknowledged, and the connection's order holds."""

    async def main() -> None:
        first, second, third = rig.send("NEW"), rig.send("NEW"), rig.send("TBW102")
        for request in (first, second, third):
            rig.broker.slow_send(request)
        assert rig.fast_path.named("resend") == []
        while len(rig.fast_path.named("complete")) < 3:
            await trio.lowlevel.checkpoint()
        assert [args[0] for args in rig.fast_path.named("resend")] == [first, second, third]
        assert '"NEW"' in rig.services.topics.file.path.read_text()
        await trio.testing.wait_all_tasks_blocked()
        assert len(rig.broker._slow_send.sends) == 0 and rig.broker._slow_send._waiting == {}

    rig.run(main)


def test_no_room_for_a_new_topic_is_a_refusal_and_the_topic_does_not_exist(
    rig: SlowPathRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise StoreError("the control block has no room for another queue")

    monkeypatch.setattr(rig.fast_path, "topic_changed", full, raising=False)
    assert admit(rig, "T") == Refusal(1, "the control block has no room for another queue")
    assert rig.services.topics.select("T") is None and not rig.services.topics.file.is_dirty
    monkeypatch.undo()
    assert admit(rig, "T") == Resend(0, 0)
    assert rig.fast_path.named("topic_changed")[-1][0] == "T"


@pytest.mark.parametrize("is_new_topic", [False, True])
def test_delayed_sends_of_a_connection_keep_their_order(rig: SlowPathRig, is_new_topic: bool) -> None:
    """Tasks of one turn begin in no particular order, so their puts must not.
    Fault: Pipelined delayed sends of one connection could be stored out of order."""

    async def main() -> None:
        for turn in range(20):
            topic = f"T{turn}" if is_new_topic else "TBW102"
            bodies = [b"%d" % number for number in range(10)]
            rig.fast_path.puts.clear()
            for body in bodies:
                rig.broker.slow_send(rig.send(topic, properties=b"DELAY\x013", body=body))
            while len(rig.fast_path.puts) < len(bodies):  # noqa: ASYNC110 - a file is saved in a thread
                await trio.sleep(0.001)
            assert [put.body for put in rig.fast_path.puts] == bodies

    rig.run(main)


OLD = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "


@pytest.mark.parametrize("properties", [b"", b"DELAY\x013", b"TRAN_MSG\x01true"])
def test_a_send_whose_client_waits_no_longer_is_not_stored(rig: SlowPathRig, properties: bytes) -> None:
    """Our own absence counts as well: the client has given up, whoever was away, and may have sent it again.
    Fault: Sends that waited longer than their clients were stored beside the clients' retries."""

    async def main() -> None:
        young, old = rig.send("T", properties=properties), rig.send("U", properties=properties)
        rig.clock.advance(3000)
        rig.broker.slow_send(young)
        while len(rig.fast_path.named("complete")) < 1:
            await trio.lowlevel.checkpoint()
        rig.clock.advance(1)
        rig.broker.slow_send(old)
        assert len(rig.fast_path.puts) + len(rig.fast_path.named("resend")) == 1
        assert rig.channel.last.code == 2 and (rig.channel.last.remark or "").startswith(f"{OLD}3001ms")
        assert rig.services.topics.select("U") is None, "nothing is made for it"
        assert len(rig.fast_path.named("complete")) == 2

    rig.run(main)


@pytest.mark.parametrize("properties", [b"", b"DELAY\x013"])
def test_a_oneway_send_is_stored_however_long_it_waited(rig: SlowPathRig, properties: bytes) -> None:
    """Nobody waits for it, and nobody sends it again."""

    async def main() -> None:
        old = rig.send("T", properties=properties, is_oneway=True)
        rig.clock.advance(60_000)
        rig.broker.slow_send(old)
        while len(rig.fast_path.named("complete")) < 1:
            await trio.lowlevel.checkpoint()
        assert len(rig.fast_path.puts) + len(rig.fast_path.named("resend")) == 1

    rig.run(main)


def test_a_send_whose_topic_takes_too_long_to_save_is_not_stored(
    rig: SlowPathRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = rig.services.topics.file.save

    async def slowly() -> None:
        rig.clock.advance(2000)
        await save()

    async def main() -> None:
        for advance in (1000, 1001):
            with monkeypatch.context() as patch:
                patch.setattr(rig.services.topics.file, "save", slowly, raising=False)
                request = rig.send(f"T{advance}")
                rig.clock.advance(advance)
                rig.broker.slow_send(request)
                before = len(rig.fast_path.named("complete"))
                while len(rig.fast_path.named("complete")) == before:
                    await trio.lowlevel.checkpoint()
        assert [args[0].topic for args in rig.fast_path.named("resend")] == ["T1000"]
        assert rig.channel.last.code == 2

    rig.run(main)


@pytest.mark.parametrize(
    "settings", [{"broker_fast_failure_enable": False}, {"rocketpy": {"slow_send_age_max_millis": 60_000}}]
)
def test_old_sends_are_stored_where_the_configuration_says_so(tmp_path: Path, settings: dict[str, Any]) -> None:
    rig = SlowPathRig(tmp_path, **settings)
    request = rig.send("TBW102")
    rig.clock.advance(60_000)
    assert rig.broker._slow_send.admit(request) == Resend(0, 0)


def test_too_many_sends_in_waiting_are_answered_busy(rig: SlowPathRig) -> None:
    """Fault: One connection could hold every place of sends on the slow path."""

    async def main() -> None:
        rig.fast_path.put_gate = trio.Event()
        for _ in range(PENDING_SENDS_MAX // 2):
            rig.broker.slow_send(rig.send("TBW102", properties=b"DELAY\x013"))
        assert not rig.channel.pushed
        rig.broker.slow_send(rig.send("TBW102"))
        assert rig.channel.last.code == 2
        other = FakeChannel(2)
        for _ in range(PENDING_SENDS_MAX // 4):
            rig.broker.slow_send(rig.send("TBW102", properties=b"DELAY\x013", channel=other))
        assert not other.pushed, "a connection with too many keeps no other out"
        rig.broker.slow_send(rig.send("TBW102", channel=other))
        assert other.last.code == 2
        assert rig.channel.last.remark == "[OVERLOAD]system busy, start flow control for a while"

    rig.run(main)


def test_sends_in_waiting_are_bounded_in_bytes_too(rig: SlowPathRig) -> None:
    """Fault: 10 000 sends of 4 MB each could wait in the manager while topics.json was being saved."""
    body = bytes(4_000_000)

    async def main() -> None:
        rig.fast_path.put_gate = trio.Event()
        while not rig.channel.pushed:
            assert len(rig.fast_path.puts) * len(body) <= PENDING_BYTES_MAX // 2
            rig.broker.slow_send(rig.send("TBW102", properties=b"DELAY\x013", body=body))
        assert rig.channel.last.code == 2 and len(rig.fast_path.named("complete")) == len(rig.fast_path.puts) + 1
        assert (len(rig.fast_path.puts) + 2) * len(body) > PENDING_BYTES_MAX // 2
        rig.fast_path.put_gate.set()
        await trio.testing.wait_all_tasks_blocked()
        rig.channel.pushed.clear()
        rig.broker.slow_send(rig.send("TBW102", properties=b"DELAY\x013", body=body))
        await trio.testing.wait_all_tasks_blocked()
        assert [response.code for response in rig.channel.pushed] == [0], "what has been answered takes no room"

    rig.run(main)


def test_a_single_send_waits_whatever_its_size(rig: SlowPathRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.broker.sending.pending_sends.PENDING_BYTES_MAX", 10)

    async def main() -> None:
        rig.broker.slow_send(rig.send("TBW102", properties=b"DELAY\x013", body=bytes(1000)))
        await trio.testing.wait_all_tasks_blocked()
        assert rig.channel.last.code == 0

    rig.run(main)


def breaks(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("a fault of ours")


async def breaks_later(*args: Any, **kwargs: Any) -> Any:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("a fault of ours")


SENDS: dict[str, dict[str, Any]] = {
    "plain": {"topic": "TBW102"},
    "new topic": {"topic": "NEW"},
    "refused": {"topic": "a/b"},
    "delayed": {"topic": "TBW102", "properties": b"DELAY\x013"},
    "delayed, new topic": {"properties": b"DELAY\x013"},
    "half": {"topic": "TBW102", "properties": b"TRAN_MSG\x01true"},
    "one-way": {"is_oneway": True},
    "digits": {"properties": b"DELAY\x01" + b"9" * 5000},
    "batch": {"is_batch": True, "properties": b"DELAY\x01\xc2\xb2"},
}
FAULTS = {
    "none": (),
    "admit": ("_admit",),
    "resend": ("resend",),
    "put": ("put",),
    "save": ("save",),
    "reply": ("push",),
    "reply and resend": ("push", "resend"),
    "reply and put": ("push", "put"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("send", SENDS)
def test_no_send_stays_behind_whatever_fails(
    rig: SlowPathRig, monkeypatch: pytest.MonkeyPatch, send: str, fault: str
) -> None:
    """Each is counted out and completed once, and what comes after it is served.
    Fault: A DELAY property of 4301 digits raised during validation and held a place for pending sends for ever."""

    async def main() -> None:
        places = {
            "_admit": rig.broker._slow_send,
            "resend": rig.fast_path,
            "put": rig.fast_path,
            "push": FakeChannel,
            "save": rig.services.topics.file,
        }
        requests = [rig.send(**SENDS[send]) for _ in range(3)]
        with monkeypatch.context() as patch:
            for name in FAULTS[fault]:
                failing = breaks_later if name in ("put", "save") else breaks
                patch.setattr(places[name], name, failing, raising=False)
            for request in requests:
                rig.broker.slow_send(request)
            while len(rig.broker._slow_send.sends):
                await trio.lowlevel.checkpoint()
        assert sorted(map(id, rig.fast_path.named("complete"))) == sorted(map(id, requests))
        assert rig.broker._slow_send._waiting == {}
        last = rig.send("TBW102")
        rig.broker.slow_send(last)
        while len(rig.broker._slow_send.sends):
            await trio.lowlevel.checkpoint()
        assert rig.fast_path.named("resend")[-1][0] is last

    rig.run(main)


def test_a_send_that_fails_is_told_why(rig: SlowPathRig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(rig.broker._slow_send, "_admit", breaks)
        rig.broker.slow_send(rig.send("TBW102"))
        assert (rig.channel.last.code, rig.channel.last.remark) == (1, "RuntimeError: a fault of ours")

    rig.run(main)


def test_sends_that_wait_when_the_broker_stops_are_counted_out(rig: SlowPathRig) -> None:
    async def main() -> None:
        for topic in ("NEW", "NEW", "OTHER"):
            rig.broker.slow_send(rig.send(topic))
        assert len(rig.broker._slow_send.sends) == 3

    rig.run(main)
    assert len(rig.broker._slow_send.sends) == 0 and len(rig.fast_path.named("complete")) == 3
