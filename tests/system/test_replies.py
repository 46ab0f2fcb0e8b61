"""Replies of request-reply reach a requester that has connected again while the broker still has its old connection."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.properties import encode_properties
from rocketpy.remoting.bodies.client import HeartbeatData, ProducerData
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import running_broker
from tests.support.wire import Wire, max_offset, send_request

CLIENT = "asker@1"
TOPIC = "DefaultCluster_REPLY_TOPIC"


def join(wire: Wire) -> None:
    body = HeartbeatData(client_id=CLIENT, producer_data_set=[ProducerData(group_name="Askers")]).encode()
    assert wire.ask(RemotingCommand.request(RequestCode.HEART_BEAT, None, body)).code == ResponseCode.SUCCESS


def test_a_reply_goes_to_the_connection_that_was_heard_last(tmp_path: Path) -> None:
    """The old connection is in a higher slot of the selector than the new one, which takes a slot that was free.
    Fault: After a reconnect on a lower slot, replies of request-reply went to the old connection."""
    properties = encode_properties({"CORRELATION_ID": "c", "REPLY_TO_CLIENT": CLIENT, "MSG_TYPE": "reply"})
    with running_broker({"serverSelectorThreads": "1"}, store=tmp_path / "store") as broker:
        early = Wire.open(broker.port)
        with Wire.open(broker.port) as answerer, Wire.open(broker.port) as lost:
            join(early)
            join(lost)
            early.sock.close()
            for _ in range(2):  # the selector sees the end of `early` before these
                assert max_offset(answerer, TOPIC) == 0
            with Wire.open(broker.port) as asker:
                join(asker)
                reply = send_request(TOPIC, b"answer", properties=properties, code=RequestCode.SEND_REPLY_MESSAGE_V2)
                (opaque,) = answerer.tell(reply)
                pushed = asker.read()
                assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
                taken = RemotingCommand.response(ResponseCode.SUCCESS)
                taken.opaque = pushed.opaque
                asker.sock.sendall(taken.encode())
                assert answerer.answers([opaque])[opaque].code == ResponseCode.SUCCESS
        assert broker.stop() == 0
