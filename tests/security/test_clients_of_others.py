"""Attempts to get what the broker pushes to a client of another account, by naming its producer group or client id. The
broker is a process tree of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode
from rocketpy.remoting.bodies.client import HeartbeatData, ProducerData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.signature import sign
from tests.security.test_access_control import ADMIN, BOTH, NOBODY, SENDER, Guarded, ask, guarded_broker
from tests.support.wire import Wire, send_request

ROUNDS = 4  # of questions: with two producers in turn, each would be asked twice


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    often = {"transactionCheckInterval": "200", "transactionTimeOut": "1"}
    with guarded_broker(tmp_path_factory.mktemp("home"), **often) as found:
        yield found


def heartbeat(client_id: str, group: str = "PG") -> RemotingCommand:
    body = HeartbeatData(client_id=client_id, producer_data_set=[ProducerData(group_name=group)])
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=body.encode(), ext_fields={})


def pushed(wire: Wire) -> list[int]:
    """The codes of the requests that the broker has sent up to now."""
    opaques, codes = set(wire.tell(RemotingCommand.request(4711, ext_fields={}))), []
    while opaques:
        command = wire.read()
        if command.is_response:
            opaques.discard(command.opaque)
        else:
            codes.append(command.code)
    return codes


@pytest.mark.parametrize("restarts", [False, True])
def test_questions_about_transactions_go_to_accounts_that_may_send_to_the_topic(
    guarded: Guarded, restarts: bool
) -> None:
    """Fault: Any account got the half messages of a producer group that it named, and could let them expire."""
    half = "TRAN_MSG\1true\2PGROUP\1PG\2UNIQ_KEY\1u\2"
    with guarded.open() as victim, guarded.open() as stranger, guarded.open() as other:
        assert ask(victim, heartbeat("victim"), BOTH).code == 0
        assert ask(stranger, heartbeat("stranger"), NOBODY).code == 0
        assert ask(other, heartbeat("other"), SENDER).code == 0
        assert ask(victim, send_request("Mine", b"half", properties=half), SENDER).code == 0
        if restarts:
            guarded.broker.kill_worker("manager")
        for _ in range(ROUNDS):
            command = other.read()
            assert (command.code, b"half" in (command.body or b"")) == (RequestCode.CHECK_TRANSACTION_STATE, True)
        assert pushed(stranger) == pushed(victim) == [], "neither may send to Mine"


def reply(topic: str, client_id: str) -> RemotingCommand:
    properties = f"REPLY_TO_CLIENT\1{client_id}\2CORRELATION_ID\1c\2"
    return send_request(topic, b"reply", code=RequestCode.SEND_REPLY_MESSAGE_V2, properties=properties)


def test_replies_go_to_the_account_that_has_used_the_client_id_first(guarded: Guarded) -> None:
    with guarded.open() as victim, guarded.open() as stranger, guarded.open() as replier:
        assert ask(victim, heartbeat("10.0.0.1@77", "Asking"), BOTH).code == 0
        assert ask(stranger, heartbeat("10.0.0.1@77", "Asking"), NOBODY).code == 0
        request = reply("DefaultCluster_REPLY_TOPIC", "10.0.0.1@77")
        sign(request, ADMIN)
        replier.tell(request)
        command = victim.read()
        assert (command.code, command.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"reply")
        victim.sock.sendall(RemotingCommand.response().answering(command).encode())
        assert replier.read().code == 0
        assert pushed(stranger) == []


def test_the_right_to_send_to_a_topic_is_no_right_to_push_replies(guarded: Guarded) -> None:
    with guarded.open() as victim, guarded.open() as stranger:
        assert ask(victim, heartbeat("victim", "Asking"), BOTH).code == 0
        answer = ask(stranger, reply("Mine", "victim"), SENDER)
        assert (answer.code, answer.remark) == (1, "replies are for topic DefaultCluster_REPLY_TOPIC, not Mine")
        assert pushed(victim) == []
