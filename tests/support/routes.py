"""Registrations of two brokers and a slave, and what a name server makes of them."""

from __future__ import annotations

import attrs

from rocketpy.namesrv.registration import Registration
from rocketpy.namesrv.route_info import RouteInfoManager
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig

A, A_SLAVE, B = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def topic(name: str, queues: int = 4, perm: int = 6, flag: int = 0) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, topic_sys_flag=flag)


def registration(*topics: TopicConfig, counter: int = 1, **changes: object) -> Registration:
    base = Registration(
        cluster="C",
        broker_name="a",
        broker_addr=A,
        broker_id=0,
        ha_server_addr="10.0.0.1:10912",
        data_version=DataVersion(timestamp_ms=1, counter=counter),
        topics={each.topic_name: each for each in topics},
    )
    return attrs.evolve(base, **changes)  # type: ignore[arg-type]  # the names are checked at run time


def masters(routes: RouteInfoManager) -> dict[int, str]:
    """The addresses of broker a, by id."""
    return dict(routes.cluster_info().broker_addr_table["a"].broker_addrs)
