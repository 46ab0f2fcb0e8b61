"""A consumer that goes on over a failover of an asynchronous group whose new master lacks what it has read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.ha.group import Group, real_group
from tests.support.ha.history import SUCCESS
from tests.support.ha.needs import needs_network
from tests.support.ha.network import network
from tests.support.ha.places import ANSWER_S, connected
from tests.support.history import PULL_FOUND, pull_request, send_request
from tests.support.pair import log_hashes

TOPIC, QUEUE = "T", 1
COMMITTED, COPIED, READ = 6, 10, 20  # offsets: committed, the end of the queue on the slave, on the master
NEW = 4  # messages that the new master takes before the consumer comes
SETTINGS = {"brokerRole": "ASYNC_MASTER", "slaveTimeout": "20000", "haMaxTimeSlaveNotCatchup": "20000"}
GROUP = "history"  # of pull_request


@needs_network
def test_a_consumer_whose_offset_is_beyond_the_queue_goes_on_where_its_group_has_committed(tmp_path: Path) -> None:
    """Fault: A consumer with an offset of a lost log tail was sent past messages that had come since."""
    with network("a", "b", "etcd") as places, real_group(tmp_path, network=places, settings=SETTINGS) as group:
        first = group.master() or ""
        second = group.other(first)
        stores = [member.store for member in group.members.values()]
        send(group, first, COPIED)
        ask(group, first, offset_of(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=str(COMMITTED)))
        group.wait_for(lambda: len({tuple(log_hashes(store).items()) for store in stores}) == 1, "equal logs")
        query = offset_of(RequestCode.QUERY_CONSUMER_OFFSET)
        group.wait_for(lambda: ask(group, second, query).ext_fields == {"offset": str(COMMITTED)}, "the copied offset")
        places.cut_port(first, group.members[first].port + 1, second)
        group.history.happened(f"the log stream of {first} is cut")
        send(group, first, READ - COPIED)
        group.wait_for(lambda: ask(group, first, pull_request(TOPIC, QUEUE, READ - 1)).code == PULL_FOUND, "the tail")
        group.history.happened(f"kill -9 of all of {first}")
        group.members[first].kill_all()
        group.wait_for(lambda: group.master() == second, "another master")
        assert log_hashes(stores[0]) != log_hashes(stores[1]), "nothing is lost"
        send(group, second, NEW)
        ask(group, second, pull_request(TOPIC, 0, 0))  # the group is known: the next pull is the fast path's
        answer = ask(group, second, pull_request(TOPIC, QUEUE, READ))
        fields = answer.ext_fields or {}
        shown = answer.code, fields.get("nextBeginOffset"), fields.get("maxOffset")
        assert shown == (ResponseCode.PULL_OFFSET_MOVED, str(COMMITTED), str(COPIED + NEW))
        places.join_port(first, group.members[first].port + 1, second)
        group.members[first].begin()
        group.wait_in_sync()


def send(group: Group, name: str, count: int) -> None:
    """Send messages; what is refused is sent again."""
    request = send_request(TOPIC, QUEUE, [b"x "], 1)
    for _ in range(count):
        group.wait_for(lambda: ask(group, name, request).code == SUCCESS, "a message that is stored")


def ask(group: Group, name: str, request: RemotingCommand) -> RemotingCommand:
    with connected(group.members[name].server, ANSWER_S) as connection:
        return connection.ask(request)


def offset_of(code: int, **fields: str) -> RemotingCommand:
    queue = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(QUEUE)}
    return RemotingCommand.request(code, ext_fields=queue | fields)
