"""Topics that sends have made just before their master dies: what was sent to them is delivered."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.remoting.command import RemotingCommand
from tests.support.ha.group import Group, real_group
from tests.support.ha.history import SUCCESS
from tests.support.ha.needs import needs_network
from tests.support.ha.network import network
from tests.support.ha.places import ANSWER_S, connected
from tests.support.history import commit_of, send_request
from tests.support.pair import log_hashes

PLAIN, DELAYED, TIMED, HALF = "NewPlain", "NewDelayed", "NewTimed", "NewHalf"
PROPERTIES = {
    PLAIN: "",
    DELAYED: "DELAY\x011\x02",
    TIMED: "TIMER_DELAY_MS\x014000\x02",
    HALF: "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01half\x02",
}
QUEUE = 2


@needs_network
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_topics_that_the_new_master_has_not_copied(tmp_path: Path, role: str) -> None:
    """The slave has the log, and no table since before the topics. The messages become due on the new master.
    Fault: A topic made just before its master died was unknown to the next one."""
    settings = {"brokerRole": role, "messageDelayLevel": "4s"}
    with network("a", "b", "etcd") as places, real_group(tmp_path, network=places, settings=settings) as group:
        first = group.master() or ""
        second = group.other(first)
        places.cut_port(first, group.members[first].port, second)
        group.history.happened(f"{second} copies the log of {first}, and no tables")
        half = send(group, first)
        stores = [member.store for member in group.members.values()]
        group.wait_for(lambda: len({tuple(log_hashes(store).items()) for store in stores}) == 1, "equal logs")
        group.history.happened(f"kill -9 of all of {first}")
        group.members[first].kill_all()
        group.wait_for(lambda: group.master() == second, "another master")
        group.wait_for(lambda: found(group, PLAIN), "the plain message, with nothing but its queue")
        with connected(group.members[second].server, ANSWER_S) as connection:
            assert connection.ask(half).code == SUCCESS
        for topic in PROPERTIES:
            group.wait_for(lambda topic=topic: found(group, topic) == [(QUEUE, topic)], f"a message of {topic}")  # type: ignore[misc]  # bound now
        places.join_port(first, group.members[first].port, second)
        group.members[first].begin()
        group.wait_in_sync()
        group.check()


def send(group: Group, name: str) -> RemotingCommand:
    """Send a message to each topic. Returns the end of the transaction."""
    with connected(group.members[name].server, ANSWER_S) as connection:
        for topic, properties in PROPERTIES.items():
            request = send_request(topic, QUEUE, [f"{topic} ".encode()], 1)
            assert request.ext_fields is not None
            request.ext_fields |= {"i": properties, "f": "4" if topic == HALF else "0"}
            answer = connection.ask(request)
            assert answer.code == SUCCESS, answer
    return commit_of(answer)


def found(group: Group, topic: str) -> list[tuple[int, str]]:
    """The messages of a topic that consumers are shown: queue and key."""
    shown = group.stored(group.members[group.master() or ""], topic)
    return [(queue_id, key) for (queue_id, _), key in shown.items()]
