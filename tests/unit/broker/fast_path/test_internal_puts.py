"""The manager's own puts: in the order in which they began, each with its outcome."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.fast_path import internal_puts as module
from rocketpy.broker.fast_path.internal_puts import PUT_TIMEOUT_S, InternalPut, InternalPuts
from rocketpy.errors import LocalProtocolError
from rocketpy.reactor import worker_messages
from rocketpy.remoting.fast_path import Delivery, MessageToPut
from tests.support import ring_messages


@attrs.define
class Sent:
    """An Outbox that keeps tokens and bodies of what is sent; full when told so."""

    records: list[tuple[int, bytes]] = attrs.field(factory=list)
    is_full: bool = False

    def put(self, kind: int, record: bytes, *, always: bool = False) -> bool:
        if not self.is_full:
            self.records.append((worker_messages.token_of(record), record[-1:]))
        return not self.is_full

    @property
    def bodies(self) -> bytes:
        return b"".join(body for _, body in self.records)


def test_a_put_that_no_ring_takes_is_refused_alone() -> None:
    class Bounded(Sent):
        def put(self, kind: int, record: bytes, *, always: bool = False) -> bool:
            if len(record) > 5000:
                raise LocalProtocolError("too large")
            return super().put(kind, record, always=always)

    async def main() -> None:
        sent = Bounded()
        puts = InternalPuts(sent, ("127.0.0.1", 10911), lambda: 0)
        refused = puts.begin(MessageToPut(topic="T", queue_id=0, body=b"x" * 5000, properties=b""))
        puts.begin(MessageToPut(topic="T", queue_id=0, body=b"y", properties=b""))
        assert (await refused.wait()).is_final_refusal and sent.bodies == b"y"

    trio.run(main)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def puts(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> InternalPuts:
    monkeypatch.setattr(module, "PUTS_MAX", 3)
    return InternalPuts(sent, ("10.0.0.1", 10911), lambda: 1000)  # type: ignore[arg-type]  # all that it uses


def begin(puts: InternalPuts, bodies: bytes) -> list[InternalPut]:
    return [puts.begin(MessageToPut("T", 0, bytes([body]), b"")) for body in bodies]


def finish(puts: InternalPuts, token: int, code: int = 0) -> None:
    puts.finished(ring_messages.put_result(token, code))


def test_they_are_sent_in_the_order_in_which_they_began_whoever_waits_first(puts: InternalPuts, sent: Sent) -> None:
    async def main() -> None:
        codes: list[int] = []

        async def wait(put: InternalPut) -> None:
            codes.append((await put.wait()).code)

        under_way = begin(puts, b"abcdefgh")
        assert sent.bodies == b"abc"
        async with trio.open_nursery() as nursery:
            for put in reversed(under_way):
                nursery.start_soon(wait, put)
            done = 0
            while done < len(under_way):
                await trio.testing.wait_all_tasks_blocked()
                for token, body in sent.records[done:]:
                    finish(puts, token, body[0])
                    done += 1
        assert sent.bodies == b"abcdefgh" and sorted(codes) == list(b"abcdefgh")
        assert puts.is_empty()

    trio.run(main)


def test_those_that_never_got_their_turn_are_not_stored(puts: InternalPuts, sent: Sent) -> None:
    async def main() -> None:
        codes: dict[int, int] = {}

        async def wait(number: int, put: InternalPut) -> None:
            codes[number] = (await put.wait()).code

        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number, put in enumerate(begin(puts, b"abcd")):
                nursery.start_soon(wait, number, put)
        assert trio.current_time() - before == pytest.approx(PUT_TIMEOUT_S)
        assert {codes[number] for number in range(3)} == {1}  # may be stored or not
        assert codes[3] == 2 or sent.bodies == b"abcd"  # the others' end may have been its turn
        assert puts.is_empty()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_one_that_finds_no_room_says_so_and_does_not_hold_the_next_up(puts: InternalPuts, sent: Sent) -> None:
    async def main() -> None:
        sent.is_full = True
        (full,) = begin(puts, b"a")
        sent.is_full = False
        (put,) = begin(puts, b"b")
        assert (await full.wait()).code == 2 and sent.bodies == b"b"
        finish(puts, sent.records[0][0], 14)
        assert (await put.wait()).code == 14 and puts.is_empty()

    trio.run(main)


def test_a_waiter_that_is_cancelled_leaves_nothing_behind(puts: InternalPuts, sent: Sent) -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with trio.open_nursery() as nursery:
                for put in begin(puts, b"abcd"):
                    nursery.start_soon(put.wait)
        assert puts.is_empty()

    trio.run(main)


def test_deliveries_end_when_the_send_worker_was_replaced_and_other_puts_do_not(puts: InternalPuts, sent: Sent) -> None:
    """A delivery may be put again at once; what became of another put only its result can tell."""

    async def main() -> None:
        delivery = puts.begin(MessageToPut("T", 0, b"a", b"", delivery=Delivery(1, 2, 3)))
        (other,) = begin(puts, b"b")
        puts.send_process_replaced()
        assert (await delivery.wait()).code == 2
        finish(puts, sent.records[1][0])
        assert (await other.wait()).is_stored and puts.is_empty()

    trio.run(main)


def test_one_that_cannot_be_encoded_has_not_begun(puts: InternalPuts, sent: Sent) -> None:
    """Fault: A damaged delayed message was retried for ever and kept the manager from stopping."""
    with pytest.raises(OverflowError):
        puts.begin(MessageToPut("T", 0, b"a", b"", born_host=("10.0.0.1", 70_000)))
    assert puts.is_empty() and sent.records == []
