"""Many clients that bring SQL92 expressions which take long to compile: the heartbeats of others are answered
meanwhile, and so are theirs, in the end."""

from __future__ import annotations

import select
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import running_broker
from tests.support.filtered_pulls import FilteredGroup, put
from tests.support.wire import Wire

CLIENTS, TEXTS = 20, 8


def expression(number: int) -> str:
    """About 50 ms of work for the compiler, and then refused: it has too many values."""
    return " OR ".join(f"a > {number * 1000 + value}" for value in range(500))


def heavy_heartbeat(client: int) -> RemotingCommand:
    data = [
        SubscriptionData(
            topic=f"T{number}",
            sub_string=expression(client * TEXTS + number),
            expression_type="SQL92",
            sub_version=1,
        )
        for number in range(TEXTS)
    ]
    consumer = ConsumerData(group_name=f"Heavy{client}", subscription_data_set=data)
    body = HeartbeatData(client_id=f"heavy@{client}", consumer_data_set=[consumer]).encode()
    return RemotingCommand.request(RequestCode.HEART_BEAT, None, body)


def plain_heartbeat() -> RemotingCommand:
    body = HeartbeatData(client_id="plain@1", producer_data_set=[ProducerData(group_name="P")]).encode()
    return RemotingCommand.request(RequestCode.HEART_BEAT, None, body)


def test_heartbeats_do_not_wait_for_the_expressions_of_others(tmp_path: Path) -> None:
    """Fault: Compiling SQL92 expressions of 70 connections kept all heartbeats waiting for 30 s."""
    with running_broker({"enablePropertyFilter": "true"}, store=tmp_path / "store") as broker, ExitStack() as stack:
        plain = stack.enter_context(Wire.open(broker.port))
        put(plain, "Filtered", 0, 20)
        wires = [stack.enter_context(Wire.open(broker.port)) for _ in range(CLIENTS)]
        beats = [wire.tell(heavy_heartbeat(number)) for number, wire in enumerate(wires)]
        for _ in range(10):
            assert plain.ask(plain_heartbeat()).code == ResponseCode.SUCCESS
        FilteredGroup(plain, "Filtered", "mod = 7").join()
        assert FilteredGroup(plain, "Filtered", "mod = 7").get(20) == [7, 17]
        answered, _, _ = select.select([wire.sock for wire in wires], [], [], 0)
        assert len(answered) < CLIENTS / 2, "the others are not done yet"
        last = wires[-1]
        (leaving,) = last.tell(
            RemotingCommand.request(
                RequestCode.UNREGISTER_CLIENT,
                ext_fields={"clientID": f"heavy@{CLIENTS - 1}", "consumerGroup": f"Heavy{CLIENTS - 1}"},
            )
        )
        for wire in wires[1:-1]:
            wire.sock.close()
        begun = time.monotonic()
        assert wires[0].answers(beats[0])[beats[0][0]].code == ResponseCode.SUCCESS
        answers = last.answers([*beats[-1], leaving])
        assert {answer.code for answer in answers.values()} == {ResponseCode.SUCCESS}
        print(f"two heartbeats in {time.monotonic() - begun:.1f} s after those of closed connections were dropped")
        members = {"consumerGroup": f"Heavy{CLIENTS - 1}"}
        answer = plain.ask(RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields=members))
        assert answer.code == ResponseCode.SYSTEM_ERROR, "a client that has left is not entered again by its heartbeat"
        assert broker.stop() == 0
