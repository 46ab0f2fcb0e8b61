"""TransactionProducer against a scripted cluster: what it sends, tells and answers."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rocketpy import aio
from rocketpy.client import (
    LocalTransactionState,
    Message,
    ProducerOptions,
    ReceivedMessage,
    TransactionProducer,
    transaction_producer,
)
from rocketpy.client.results import SendStatus
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, MessageInvalid
from rocketpy.message.names import TRACE_TOPIC
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import decode_records as stored_records
from rocketpy.message.trace import EndTransaction, decode_records
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    read_send_header,
)
from tests.support.clients import lifetime, remember_channel
from tests.support.cluster import NAME_SERVER, FakeBroker, FakeCluster, run

pytestmark = pytest.mark.usefixtures("backend")

COMMIT, ROLLBACK, UNKNOWN = LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK, LocalTransactionState.UNKNOWN
SEND = RequestCode.SEND_MESSAGE_V2


@attrs.define(eq=False)
class Local:
    """Local transactions whose outcome the test says."""

    outcome: Any = COMMIT
    checked: Any = COMMIT
    executed: list[tuple[Message, object]] = attrs.field(factory=list)
    asked: list[ReceivedMessage] = attrs.field(factory=list)

    async def execute(self, message: Message, argument: object) -> Any:
        self.executed.append((message, argument))
        return self._say(self.outcome)

    async def check(self, message: ReceivedMessage) -> Any:
        self.asked.append(message)
        return self._say(self.checked)

    @staticmethod
    def _say(outcome: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@attrs.define(eq=False)
class Busy(Local):
    """Answers checks when the test lets it."""

    gate: aio.Event = attrs.field(factory=aio.Event)

    async def check(self, message: ReceivedMessage) -> Any:
        self.asked.append(message)
        await self.gate.wait()
        return COMMIT


class Plain:
    """Plain functions, which run in threads."""

    def execute(self, message: Message, argument: object) -> LocalTransactionState:
        return ROLLBACK

    def check(self, message: ReceivedMessage) -> LocalTransactionState:
        return COMMIT


def transactions(cluster: FakeCluster, listener: Any, **changes: Any) -> TransactionProducer:
    options = ProducerOptions(name_servers=NAME_SERVER, client_ip="10.1.1.1", **changes)
    return TransactionProducer("pg", listener, options, lifetime=lifetime(cluster, options, "10.1.1.1@p"))


def ends(broker: FakeBroker) -> list[EndTransactionRequestHeader]:
    return [EndTransactionRequestHeader.of(request) for request in broker.got(RequestCode.END_TRANSACTION)]


def test_a_half_message_is_sent_and_committed() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Local()
        async with transactions(cluster, local) as producer:
            message = Message("T", b"m", keys="k", delay_level=3)
            result = await producer.send_in_transaction(message, 42)
            await aio.sleep(0.1)
        assert (result.state, result.send.status) == (COMMIT, SendStatus.SEND_OK)
        assert local.executed == [(message, 42)]
        header = read_send_header(broker.got(SEND)[0])
        properties = decode_properties(header.properties or "")
        assert header.sys_flag == 4 and "DELAY" not in properties
        assert (properties["TRAN_MSG"], properties["PGROUP"], properties["KEYS"]) == ("true", "pg", "k")
        (end,) = ends(broker)
        assert end == EndTransactionRequestHeader(
            producer_group="pg",
            tran_state_table_offset=result.send.queue_offset,
            commit_log_offset=0,
            commit_or_rollback=8,
            msg_id=result.send.msg_id,
            broker_name="broker-a",
        )
        assert broker.got(RequestCode.END_TRANSACTION)[0].is_oneway

    run(scenario)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(ROLLBACK, ROLLBACK), (UNKNOWN, UNKNOWN), (None, UNKNOWN), (ValueError("no"), UNKNOWN), ("commit", UNKNOWN)],
)
def test_the_outcome_of_the_local_transaction_is_told(outcome: Any, state: LocalTransactionState) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Local(outcome)
        async with transactions(cluster, local) as producer:
            assert (await producer.send_in_transaction(Message("T", b"m"))).state is state
            await aio.sleep(0.1)
        assert [end.commit_or_rollback for end in ends(broker)] == [state.value]

    run(scenario)


def test_plain_functions_run_in_threads() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with transactions(cluster, Plain()) as producer:
            assert (await producer.send_in_transaction(Message("T", b"m"))).state is ROLLBACK
            await aio.sleep(0.1)
        assert [end.commit_or_rollback for end in ends(broker)] == [12]

    run(scenario)


def test_a_half_message_that_is_not_safe_is_rolled_back_unexecuted() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Local()
        send = broker.answers[SEND]

        def late(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            return attrs.evolve(send(request, channel), code=ResponseCode.FLUSH_DISK_TIMEOUT)

        broker.answers[SEND] = late
        async with transactions(cluster, local) as producer:
            assert (await producer.send_in_transaction(Message("T", b"m"))).state is ROLLBACK
            await aio.sleep(0.1)
        assert local.executed == []
        assert [end.commit_or_rollback for end in ends(broker)] == [12]

    run(scenario)


def test_a_refused_half_message_is_an_error_and_nothing_runs() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Local()
        broker.refuse(SEND, *[ResponseCode.NO_PERMISSION] * 9)
        async with transactions(cluster, local) as producer:
            with pytest.raises(BrokerError):
                await producer.send_in_transaction(Message("T", b"m"))
        assert local.executed == [] and ends(broker) == []

    run(scenario)


def test_nothing_runs_if_the_answer_names_no_message() -> None:
    """Fault: `send_in_transaction` ran the local transaction before it noticed an unreadable message id."""

    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Local()
        send = broker.answers[SEND]

        def nameless(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            answer = send(request, channel)
            assert isinstance(answer, RemotingCommand)
            return attrs.evolve(answer, ext_fields={**(answer.ext_fields or {}), "msgId": "no id"})

        broker.answers[SEND] = nameless
        async with transactions(cluster, local) as producer:
            with pytest.raises(MessageInvalid):
                await producer.send_in_transaction(Message("T", b"m"))
        assert local.executed == [] and ends(broker) == []

    run(scenario)


def check_of(broker: FakeBroker, **changes: Any) -> RemotingCommand:
    """The question about the first message of topic T."""
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=7, commit_log_offset=8, msg_id="x", transaction_id="tx"
    )
    body = next(images[0] for (topic, _), images in broker.records.items() if topic == "T")
    return RemotingCommand.oneway(RequestCode.CHECK_TRANSACTION_STATE, header, body=changes.get("body", body))


@pytest.mark.parametrize(("checked", "told"), [(COMMIT, 8), (ROLLBACK, 12), (UNKNOWN, 0), (KeyError("x"), 0)])
def test_a_check_is_answered(checked: Any, told: int) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Local(UNKNOWN, checked)
        channels = remember_channel(broker)
        async with transactions(cluster, local) as producer:
            result = await producer.send_in_transaction(Message("T", b"m"))
            channels[0].push(check_of(broker))
            await aio.sleep(0.5)
        assert [message.msg_id for message in local.asked] == [result.send.msg_id]
        answer = ends(broker)[-1]
        assert (answer.commit_or_rollback, answer.from_transaction_check) == (told, True)
        assert (answer.tran_state_table_offset, answer.commit_log_offset) == (7, 8)
        assert (answer.msg_id, answer.transaction_id) == (result.send.msg_id, "tx")

    run(scenario)


def test_a_check_is_answered_while_the_producer_closes() -> None:
    """The local transaction ends after the producer was left, and before its connections are closed.
    Fault: A transaction check answered while its producer closed failed the producer's whole block."""

    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Busy(UNKNOWN)
        channels = remember_channel(broker)
        unregister = broker.answers[RequestCode.UNREGISTER_CLIENT]

        def let_go(request: RemotingCommand, channel: Channel) -> object:
            local.gate.set()
            return unregister(request, channel)

        broker.answers[RequestCode.UNREGISTER_CLIENT] = let_go  # type: ignore[assignment]
        async with transactions(cluster, local) as producer:
            await producer.send_in_transaction(Message("T", b"m"))
            channels[0].push(check_of(broker))
            await aio.sleep(0.5)
            assert len(local.asked) == 1

    run(scenario)


def traced_ends(broker: FakeBroker) -> list[EndTransaction]:
    images = broker.records.get((TRACE_TOPIC, 0), [])
    bodies = [record.body for image in images for record in stored_records(image)]
    records = [record for body in bodies for record in decode_records(body.decode())]
    return [record for record in records if isinstance(record, EndTransaction)]


def test_ends_are_traced() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1, **{TRACE_TOPIC: 1}), Local(UNKNOWN, ROLLBACK)
        channels = remember_channel(broker)
        async with transactions(cluster, local, trace=True) as producer:
            result = await producer.send_in_transaction(Message("T", b"m", tags="A", keys=("k1", "k2")))
            channels[0].push(check_of(broker))
            await aio.sleep(2)
        first, second = traced_ends(broker)
        assert (first.group, first.topic, first.msg_id, first.tags, first.keys) == (
            ("pg", "T", result.send.msg_id, "A", "k1 k2")
        )
        assert (first.region_id, first.kind, first.transaction_id) == ("R", 2, result.send.msg_id)
        assert (first.state, first.is_checked, second.state, second.is_checked) == (
            ("UNKNOW", False, "ROLLBACK_MESSAGE", True)
        )
        assert (second.msg_id, second.transaction_id, second.keys) == (result.send.msg_id, "tx", "k1 k2")
        assert first.store_host and second.store_host

    run(scenario)


def test_ends_are_not_traced_unless_asked() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1, **{TRACE_TOPIC: 1})
        async with transactions(cluster, Local()) as producer:
            await producer.send_in_transaction(Message("T", b"m"))
            await aio.sleep(2)
        assert ends(broker) and not traced_ends(broker)

    run(scenario)


def test_checks_of_other_groups_and_damaged_ones_are_ignored() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Local(UNKNOWN)
        channels = remember_channel(broker)
        async with transactions(cluster, local) as producer:
            await producer.send_in_transaction(Message("T", b"m"))
            broker.store("T", 0, b"other", b"PGROUP\x01other")
            other = broker.records["T", 0][-1]
            for body in (other, b"damage" * 40, b""):
                channels[0].push(check_of(broker, body=body))
            channels[0].push(check_of(broker))
            await aio.sleep(0.5)
        assert len(local.asked) == 1

    run(scenario)


def test_checks_that_wait_are_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transaction_producer, "CHECKS_BYTES_MAX", 5)

    async def scenario(cluster: FakeCluster) -> None:
        broker, local = cluster.add_broker(T=1), Busy()
        channels = remember_channel(broker)
        async with transactions(cluster, local) as producer:
            await producer.send_in_transaction(Message("T", b"two"))
            channels[0].push(check_of(broker))
            await aio.sleep(0.5)
            assert len(local.asked) == 1
            for _ in range(8):
                channels[0].push(check_of(broker))
            await aio.sleep(0.5)
            local.gate.set()
            await aio.sleep(0.5)
            assert len(local.asked) == 2, "one was being answered, one waited"
            channels[0].push(check_of(broker))
            await aio.sleep(0.5)
            assert len(local.asked) == 3

    run(scenario)
    assert len([line for line in caplog.messages if "dropped a transaction check: " in line]) == 1


def test_the_broker_knows_the_producer_before_it_has_the_half_message() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with transactions(cluster, Local()) as producer:
            await producer.send_in_transaction(Message("T", b"m"))
            codes = [request.code for request in broker.requests]
        assert codes[:2] == [RequestCode.HEART_BEAT, SEND]

    run(scenario)
