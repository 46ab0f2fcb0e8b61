"""The open clusters and producers of a process: one for each set of options, bounded, opened again after their end."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.client.options import ClientOptions, ProducerOptions
from rocketpy.errors import ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark.cluster import CLUSTERS_MAX, AsyncCluster, ClusterPool
from rocketpy.spark.sending import SENDERS_MAX, SenderPool

NOWHERE = "127.0.0.1:1"


def clusters(instance: str) -> Any:
    return ClientOptions(name_servers=NOWHERE, instance_name=instance)


def producers(instance: str) -> Any:
    return ProducerOptions(name_servers=NOWHERE, instance_name=instance)


@pytest.mark.parametrize(("kind", "limit"), [("clusters", CLUSTERS_MAX), ("senders", SENDERS_MAX)])
def test_a_process_keeps_a_bounded_number_open(kind: str, limit: int) -> None:
    pool = ClusterPool()
    sender_pool = SenderPool()

    def get(instance: str) -> Any:
        return pool.get(clusters(instance)) if kind == "clusters" else sender_pool.get("g", producers(instance))

    first = get("0")
    assert get("0") is first
    first.close()
    again = get("0")
    assert again is not first and again.is_open
    others = [get(str(number)) for number in range(1, limit + 1)]
    assert not again.is_open and all(other.is_open for other in others)
    for other in others:
        other.close()


def test_a_cluster_that_is_not_there_is_an_error_in_time() -> None:
    pool = ClusterPool()
    cluster = pool.get(clusters("x"))
    with pytest.raises(RocketError, match=re.escape(NOWHERE)):
        cluster.queues({"T"})
    cluster.close()
    with pytest.raises(ClientError, match="the client was closed"):
        cluster.queues({"T"})


def test_ends_are_awaited_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that fails is asked again: the route of a new topic may come a moment later."""
    queue, other = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
    answers: list[Any] = [ClientError("no route"), {queue: 3, other: 9}, {queue: 4, other: 9}, {queue: 5, other: 9}]
    times: list[float] = []

    async def max_offsets(self: Any, queues: Any) -> Any:
        times.append(trio.current_time())
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(AsyncCluster, "max_offsets", max_offsets)
    cluster = AsyncCluster(clusters("x"))

    async def wait(end: int) -> dict[MessageQueue, int]:
        return await cluster.wait_for({queue: end, other: 9}, 10.0)

    def run(end: int) -> dict[MessageQueue, int]:
        return trio.run(wait, end, clock=trio.testing.MockClock(autojump_threshold=0))

    assert run(5) == {} and len(times) == 4 and times[-1] - times[0] < 1.0
    times.clear()
    assert run(6) == {queue: 5}
    assert 10.0 <= times[-1] - times[0] < 11.0 and len(times) < 50
    answers[:] = [ClientError("no route")]
    with pytest.raises(ClientError, match="no route"):
        run(5)
