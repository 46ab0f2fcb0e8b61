"""Invariant: what clients have told the manager, and what it has promised them, outlives it: members, subscriptions,
queue locks and committed offsets are there for the restarted manager before anybody says them again, and locks for the
next broker as well."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the broker needs the compiled core")

from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.history import Connection, send_request
from tests.support.kills import wait_until_gone
from tests.support.wire import Wire, read_all
from tests.support.wire import send_request as wire_send

HEART_BEAT, LOCK, UNLOCK, MEMBERS, UPDATE_OFFSET, QUERY_OFFSET, PULL, CREATE_TOPIC = 34, 41, 42, 38, 15, 14, 11, 17
PULL_NOT_FOUND, SUBSCRIPTION_NOT_EXIST = 19, 24

Join = Callable[[str], "Member"]


class Member:
    """A consumer of group G that says each thing once."""

    def __init__(self, broker: RunningBroker, client_id: str) -> None:
        self.connection = Connection(broker.port, timeout_s=30.0)
        self.client_id = client_id

    def ask(self, code: int, fields: dict[str, str] | None = None, body: object = None) -> RemotingCommand:
        data = None if body is None else json.dumps(body).encode()
        answer = self.connection.ask(RemotingCommand(code=code, ext_fields=fields or {}, body=data))
        while not answer.is_response:  # a notice that the group has changed
            answer = self.connection.receive()
        return answer

    def heart_beat(self) -> None:
        subscription = {"topic": "T", "subString": "*", "subVersion": 1}
        consumer = {
            "groupName": "G",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [subscription],
        }
        assert self.ask(HEART_BEAT, None, {"clientID": self.client_id, "consumerDataSet": [consumer]}).code == 0

    def lock(self, *queues: int) -> list[int]:
        body = {"consumerGroup": "G", "clientId": self.client_id, "mqSet": [_queue(number) for number in queues]}
        answer = self.ask(LOCK, None, body)
        assert answer.code == 0 and answer.body
        return sorted(queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"])

    def members(self) -> list[str]:
        answer = self.ask(MEMBERS, {"consumerGroup": "G"})
        assert answer.code == 0 and answer.body, answer
        return sorted(json.loads(answer.body)["consumerIdList"])

    def fill(self, queue: int, messages: int) -> None:
        """Put messages into a queue: an offset beyond its end would be dropped."""
        assert self.connection.ask(send_request("T", queue, [b"x"] * messages, 1)).code == 0

    def commit(self, queue: int, offset: int) -> None:
        fields = {"consumerGroup": "G", "topic": "T", "queueId": str(queue), "commitOffset": str(offset)}
        assert self.ask(UPDATE_OFFSET, fields).code == 0

    def committed(self, queue: int) -> int:
        answer = self.ask(QUERY_OFFSET, {"consumerGroup": "G", "topic": "T", "queueId": str(queue)})
        return int((answer.ext_fields or {})["offset"])

    def pull(self) -> int:
        """By the subscription of the heartbeat: the header has none."""
        fields = {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "1",
            "sysFlag": "0",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subVersion": "1",
        }
        return self.ask(PULL, fields).code


def _queue(number: int) -> dict[str, object]:
    return {"topic": "T", "brokerName": "broker-a", "queueId": number}


def kill(broker: RunningBroker, name: str) -> None:
    wait_until_gone(broker, name, broker.kill_worker(name))


@pytest.fixture
def join(broker: RunningBroker) -> Iterator[Join]:
    """Members by client id, each on a connection of its own."""
    joined: list[Member] = []

    def join_as(client_id: str) -> Member:
        joined.append(Member(broker, client_id))
        return joined[-1]

    yield join_as
    for member in joined:
        member.connection.close()


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with running_broker({"flushConsumerOffsetInterval": "600000"}) as running:
        first = Member(running, "first")
        fields = {
            "topic": "T",
            "readQueueNums": "4",
            "writeQueueNums": "4",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "defaultTopic": "TBW102",
            "order": "false",
        }
        assert first.ask(CREATE_TOPIC, fields).code == 0
        first.connection.close()
        yield running


def test_members_locks_and_offsets_outlive_the_manager(broker: RunningBroker, join: Join) -> None:
    """Fault: A killed manager forgot group members, so one consumer took all queues and messages were consumed twice.
    Fault: Committed offsets went back by up to 5 s when the manager was killed."""
    a, b = join("a"), join("b")
    for member in (a, b):
        member.heart_beat()
    assert a.lock(0, 1) == [0, 1] and b.lock(0, 2) == [2]
    a.fill(3, 310)
    for death in range(1, 4):
        a.commit(3, 100 * death)
        a.commit(3, 100 * death + 7)
        kill(broker, "manager")
        assert b.committed(3) == 100 * death + 7
        assert a.members() == ["a", "b"]
        assert b.lock(0, 1, 2, 3) == [2, 3] if death == 1 else [2, 3]
        assert a.lock(0, 1, 2) == [0, 1]
    b.connection.close()
    deadline = time.monotonic() + 30
    while a.members() != ["a"]:
        assert time.monotonic() < deadline, "a connection that closes is seen by the restarted manager"
    assert broker.stop() == 0


def test_a_group_stays_online_when_manager_and_pull_are_killed(broker: RunningBroker, join: Join) -> None:
    """Fault: After kills of manager and pull worker, pulls were refused until the next heartbeat."""
    a = join("a")
    a.heart_beat()
    assert a.pull() == PULL_NOT_FOUND
    kill(broker, "manager")
    kill(broker, "pull")
    assert a.pull() == PULL_NOT_FOUND


def test_a_group_stays_whole_when_its_selector_is_killed(broker: RunningBroker, join: Join) -> None:
    for client_id in ("a", "b"):
        join(client_id).heart_beat()
    kill(broker, "selector 0")
    b = join("b")
    b.heart_beat()
    kill(broker, "manager")
    assert b.members() == ["a", "b"], "a comes back with its next heartbeat"
    assert b.pull() == PULL_NOT_FOUND


def test_locks_outlive_the_broker_and_offsets_are_those_of_the_file(broker: RunningBroker, join: Join) -> None:
    """Fault: After a restart a queue lock was granted anew while its holder went on consuming."""
    a = join("a")
    a.heart_beat()
    assert a.lock(0, 1) == [0, 1]
    a.fill(3, 5)
    a.commit(3, 5)
    broker.kill_all()
    broker.start()
    a, b = join("a"), join("b")
    b.heart_beat()
    assert b.members() == ["b"], "connections end with the broker"
    assert b.lock(0, 1, 2) == [2]
    assert a.lock(0, 1, 2) == [0, 1]
    assert b.committed(3) == 0, "it was not saved"


def test_a_connection_keeps_its_order_when_manager_and_send_worker_are_killed() -> None:
    """The first sends wait for the manager, behind one to a topic that does not exist yet.
    Fault: After kills of manager and send worker, later sends of a connection overtook those in the manager's ring."""
    settings = {"selectorWorkers": "1", "codecWorkers": "1", "slowSendAgeMaxMillis": "60000"}
    settings |= {"osPageCacheBusyTimeOutMills": "60000", "waitTimeMillsInSendQueue": "60000"}
    with running_broker(settings) as broker, Wire.open(broker.port) as wire, Wire.open(broker.port) as other:
        assert {wire.ask(wire_send(topic, b"-")).code for topic in ("T", "V")} == {0}
        pids = broker.workers()
        os.kill(pids["manager"], signal.SIGSTOP)
        earlier = wire.tell(wire_send("U", b"-"), *(wire_send("T", b"%d" % n) for n in range(10)))
        # The answer of the fast path shows that the send worker has passed those of `wire` to the manager.
        assert other.ask(wire_send("V", b"-")).code == 0
        for name in ("send", "manager"):
            os.kill(pids[name], signal.SIGKILL)
        later = wire.tell(*(wire_send("T", b"%d" % n) for n in range(10, 20)))
        assert {answer.code for answer in wire.answers([*earlier, *later]).values()} == {0}
        assert [record.body for record in read_all(other, "T", 21)] == [b"-", *(b"%d" % n for n in range(20))]
