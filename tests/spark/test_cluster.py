"""The open clusters and producers of a process: one for each set of options, bounded, opened again after their end."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rocketpy.client.options import ClientOptions, ProducerOptions
from rocketpy.errors import ClientError, RocketError
from rocketpy.spark.cluster import CLUSTERS_MAX, ClusterPool
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
