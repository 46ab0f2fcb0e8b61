"""A slave with automatic failover passes sends on to the master: once each, in order, within a bound of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from rocketpy.broker import replies
from rocketpy.broker.sending.passed_on_sends import BATCH_MAX, FINISH_S, KEEP_S, PASSED_ON
from rocketpy.config import BrokerRole
from rocketpy.errors import ConnectFailed, ConnectionLost, RequestTimeout
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import read_send_header
from tests.support.slow_path import FakeChannel, SlowPathRig

MASTER = "10.0.0.9:10911"


@attrs.define(eq=False)
class FakeMaster:
    """Answers what is passed on; `script` is used up one by one: a code, or an error."""

    script: list[int | Exception] = attrs.field(factory=list)
    asked: list[list[str]] = attrs.field(factory=list)  # bodies of each batch
    requests: list[RemotingCommand] = attrs.field(factory=list)
    remark: str = "r"
    is_silent: bool = False

    async def invoke_all(
        self, address: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]:
        assert address == MASTER and 0 < timeout_s <= KEEP_S
        self.asked.append([(request.body or b"").decode() for request in requests])
        await trio.sleep(3600 if self.is_silent else 0.01)
        found = self.script.pop(0) if self.script else 0
        if isinstance(found, Exception):
            raise found
        self.requests += requests
        return [RemotingCommand.response(found, self.remark) for _ in requests]


@attrs.define(eq=False)
class Slave:
    rig: SlowPathRig
    client: FakeMaster
    master: str | None = MASTER

    def send(self, *bodies: str, channel: FakeChannel | None = None, age_ms: int = 0, **changes: object) -> None:
        now_ms = self.rig.clock.monotonic_ms()
        for body in bodies:
            at: dict[str, object] = {"channel": channel or self.rig.channel, "received_ms": now_ms - age_ms}
            self.rig.broker.slow_send(self.rig.send(body=body.encode(), **(at | changes)))

    @property
    def codes(self) -> list[int]:
        return [answer.code for answer in self.rig.channel.pushed]

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            async with trio.open_nursery() as nursery:
                self.rig.broker._slow_send.open(nursery)
                nursery.start_soon(self._tick)
                await main()
                nursery.cancel_scope.cancel()

        trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))

    async def _tick(self) -> None:
        while True:
            await trio.sleep(0.01)
            self.rig.clock.advance(10)


@pytest.fixture
def slave(tmp_path: Path) -> Slave:
    rig = SlowPathRig(tmp_path, broker_role=BrokerRole.SLAVE)
    found = Slave(rig, FakeMaster())
    rig.broker.be_member(2, lambda: None, lambda: found.master, found.client)
    return found


def test_the_answer_is_the_masters(slave: Slave) -> None:
    async def main() -> None:
        slave.client.script = [10]
        slave.send("one", opaque=7, queue_id=3, has_wait=True, wait_store=False, properties=b"K\x01v\x02")
        await trio.sleep(0.1)
        (answer,), (request,) = slave.rig.channel.pushed, slave.client.requests
        assert (answer.code, answer.opaque, answer.remark) == (10, 7, "r")
        header = read_send_header(request)
        assert (header.topic, header.queue_id, request.body) == ("T", 3, b"one")
        assert decode_properties(header.properties or "") == {"K": "v", "WAIT": "false"}
        assert request.version & PASSED_ON, "a broker that is no master either does not pass it on again"
        assert len(slave.rig.broker._slow_send.sends) == 0

    slave.run(main)


def test_the_sends_of_a_connection_keep_their_order(slave: Slave) -> None:
    """The first one goes alone: the master may refuse it and take the next, if it becomes master in between."""

    async def main() -> None:
        bodies = [str(number) for number in range(50)]
        slave.client.script = [14, ConnectFailed("x"), 14]
        slave.send(*bodies)
        await trio.sleep(1)
        assert slave.client.asked[:4] == [["0"]] * 4
        taken = [body for batch in slave.client.asked[3:] for body in batch]
        assert taken == bodies
        assert max(map(len, slave.client.asked)) == BATCH_MAX
        assert slave.codes == [0] * 50

    slave.run(main)


def test_connections_do_not_wait_for_each_other(slave: Slave) -> None:
    async def main() -> None:
        slave.client.script = [14]
        slave.send("refused")
        await trio.sleep(0.001)
        other = FakeChannel(2)
        slave.send("other", channel=other)
        await trio.sleep(0.012)
        assert [answer.code for answer in other.pushed] == [0] and slave.codes == []

    slave.run(main)


@pytest.mark.parametrize("why", ["no master", "refused", "unreachable"])
def test_a_send_that_cannot_be_passed_on_in_time_is_refused(slave: Slave, why: str) -> None:
    async def main() -> None:
        slave.master = None if why == "no master" else MASTER
        slave.client.script = [14 if why == "refused" else ConnectFailed("x")] * 1000
        slave.send("one", age_ms=500)
        await trio.sleep(KEEP_S - 0.6)
        assert slave.codes == []
        await trio.sleep(0.3)
        assert slave.codes == [14]
        assert len(slave.rig.broker._slow_send.sends) == 0

    slave.run(main)


@pytest.mark.parametrize("lost", [ConnectionLost("x"), RequestTimeout("x")], ids=["connection", "time"])
def test_a_send_whose_answer_is_lost_is_not_sent_again(slave: Slave, lost: Exception) -> None:
    """The master may have stored it; only the producer knows if a second copy is welcome.
    Fault: A slave repeated passed-on sends whose answers were lost, and they were stored twice."""

    async def main() -> None:
        slave.client.script = [lost]
        slave.send("one")
        await trio.sleep(0.1)
        assert slave.codes == [14] and slave.client.asked == [["one"]]
        assert len(slave.rig.broker._slow_send.sends) == 0

    slave.run(main)


def test_a_send_that_a_fenced_master_may_have_stored_is_not_sent_again(slave: Slave) -> None:
    """Fault: A send stored by a fenced master was taken for refused and stored twice."""

    async def main() -> None:
        slave.client.script, slave.client.remark = [14], replies.PERHAPS_STORED
        slave.send("one")
        await trio.sleep(0.1)
        assert slave.codes == [14] and slave.client.asked == [["one"]]
        assert slave.rig.channel.pushed[0].remark == replies.PERHAPS_STORED

    slave.run(main)


def test_what_the_master_does_not_take_is_refused_before_the_process_leaves(slave: Slave) -> None:
    """The connection may outlive this process: without an answer its client would wait in vain.
    Fault: A slave that became master left its passed-on sends unanswered."""

    async def main() -> None:
        slave.client.script = [14] * 1000
        slave.send("one", "two")
        await trio.sleep(0.05)
        assert not slave.rig.broker.finish() and slave.codes == []
        await trio.sleep(0.1)
        assert slave.rig.broker.finish() and slave.codes == [14, 14]
        slave.client.script = [0]
        slave.send("three")
        await trio.sleep(0.1)
        assert slave.rig.broker.finish() and slave.codes == [14, 14, 0]

    slave.run(main)


def test_an_answer_that_does_not_come_is_not_waited_for_by_a_process_that_leaves(slave: Slave) -> None:
    async def main() -> None:
        slave.client.is_silent = True  # as a master that hands over
        slave.send("one")
        await trio.sleep(0.05)
        assert not slave.rig.broker.finish()
        await trio.sleep(FINISH_S - 0.1)
        assert not slave.rig.broker.finish() and slave.codes == []
        await trio.sleep(0.2)
        assert slave.rig.broker.finish() and slave.codes == [14]

    slave.run(main)


def test_many_sends_without_a_master_do_not_delay_a_process_that_leaves(slave: Slave) -> None:
    """Fault: Hundreds of sends without a master delayed a leaving process until it was killed."""

    async def main() -> None:
        slave.master = None
        slave.send(*(str(number) for number in range(300)))
        await trio.sleep(0.05)
        slave.rig.broker.finish()
        await trio.sleep(0.05)
        assert slave.rig.broker.finish() and slave.codes == [14] * 300

    slave.run(main)


def test_behind_a_send_that_is_refused_at_the_end_none_of_its_connection_is_passed_on(slave: Slave) -> None:
    """The master may take sends again meanwhile: they would be stored in another order.
    Fault: A later send of a connection could be taken behind a refused one."""

    async def main() -> None:
        slave.client.script = [14]
        slave.send("one", "two", "three")
        assert not slave.rig.broker.finish()
        await trio.sleep(0.1)
        assert slave.rig.broker.finish() and slave.codes == [14] * 3
        assert slave.client.asked == [["one"]]

    slave.run(main)


def test_sends_have_connections_of_their_own(slave: Slave) -> None:
    """A large table that comes from the master on the others delays no send.
    Fault: A large table from the master delayed sends that a slave passed on over the same connection."""

    async def main() -> None:
        async def occupied(*_: object) -> list[RemotingCommand]:
            await trio.sleep_forever()
            raise AssertionError

        slave.rig.name_servers.invoke_all = occupied  # type: ignore[attr-defined]  # as a client has it
        slave.send("one")
        await trio.sleep(0.1)
        assert slave.codes == [0] and slave.client.asked == [["one"]]

    slave.run(main)


def test_a_fault_of_one_is_its_answer(slave: Slave) -> None:
    async def main() -> None:
        slave.client.script = [ValueError("a bug")]
        slave.send("one")
        await trio.sleep(0.1)
        slave.send("two")
        await trio.sleep(0.1)
        assert slave.codes == [1, 0]

    slave.run(main)
