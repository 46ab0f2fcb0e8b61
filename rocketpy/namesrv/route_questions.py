"""Questions about the route tables: routes, clusters, lists of topics. route_info.py changes the tables.

Questions that go through all topics are generators, in steps of TOPICS_PER_STEP (remoting/work.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Set

from rocketpy.remoting.bodies.route import BrokerData, ClusterInfo, TopicRouteData

from .registration import ANYBODY, QUEUES, LiveBroker, Viewer, unpacked

TOPIC_UNIT = 1  # topicSysFlag bits (TopicSysFlag)
TOPIC_UNIT_SUB = 2
TOPICS_PER_STEP = 500


class RouteQuestions:
    """The tables, and every question about them. Results are copies."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, bytes]] = {}
        self._route_count = 0  # entries of all topics: pairs of topic and broker
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._clusters_of: dict[str, set[str]] = {}  # broker name -> its clusters
        self._live: dict[str, LiveBroker] = {}
        self._filter_servers: dict[str, tuple[str, ...]] = {}

    def route(self, topic: str, viewer: Viewer = ANYBODY) -> TopicRouteData | None:
        """Code 105: queues and addresses; None when there is no such topic or none of its brokers is known."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        queues = {name: queue for name, queue in queues.items() if name in self._brokers}
        brokers = [self._brokers[name] for name in queues]
        if not brokers:
            return None
        filter_servers = {
            self._seen(addr, viewer): list(self._filter_servers[addr])
            for broker in brokers
            for addr in broker.broker_addrs.values()
            if addr in self._filter_servers
        }
        return TopicRouteData(
            queue_datas=[unpacked(name, queue) for name, queue in queues.items()],
            broker_datas=[self._seen_broker(broker, viewer) for broker in brokers],
            filter_server_table=filter_servers,
        )

    def cluster_info(self, viewer: Viewer = ANYBODY) -> ClusterInfo:
        """Code 106."""
        return ClusterInfo(
            broker_addr_table={name: self._seen_broker(broker, viewer) for name, broker in self._brokers.items()},
            cluster_addr_table={cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def topics(self) -> Generator[None, None, list[str]]:
        """Code 206."""
        return self._topics_where(lambda queues: not self._brokers.keys().isdisjoint(queues))

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, list[str]]:
        """Code 224; nothing for a cluster that is not known."""
        names = frozenset(self._clusters.get(cluster, ()))
        return self._topics_where(lambda queues: not names.isdisjoint(queues))

    def system_topics(self, viewer: Viewer = ANYBODY) -> tuple[list[str], str | None]:
        """Code 304: names of clusters and brokers (each is a topic), and the address of a broker to ask for more."""
        names = [*self._clusters, *self._brokers]
        addrs = (self._seen(at, viewer) for broker in self._brokers.values() for at in broker.broker_addrs.values())
        return names, next(addrs, None)

    def unit_topics(self) -> Generator[None, None, list[str]]:
        """Code 311."""
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_UNIT))

    def unit_sub_topics(self) -> Generator[None, None, list[str]]:
        """Code 312."""
        return self._topics_by_flag(lambda flag: bool(flag & TOPIC_UNIT_SUB))

    def unit_sub_ununit_topics(self) -> Generator[None, None, list[str]]:
        """Code 313."""
        return self._topics_by_flag(lambda flag: flag & (TOPIC_UNIT | TOPIC_UNIT_SUB) == TOPIC_UNIT_SUB)

    def _topics_by_flag(self, predicate: Callable[[int], bool]) -> Generator[None, None, list[str]]:
        """Decided by the flag of one broker's entry, because all brokers of a topic should have the same."""

        def has_flag(queues: Mapping[str, bytes]) -> bool:
            entry = next((queue for name, queue in queues.items() if name in self._brokers), None)
            return entry is not None and predicate(QUEUES.unpack(entry)[3])

        return self._topics_where(has_flag)

    def _topics_where(self, predicate: Callable[[Mapping[str, bytes]], bool]) -> Generator[None, None, list[str]]:
        found = []
        for number, topic in enumerate(list(self._topics), 1):
            queues = self._topics.get(topic)
            if queues is not None and predicate(queues):
                found.append(topic)
            if number % TOPICS_PER_STEP == 0:
                yield
        return found

    @property
    def live_brokers(self) -> Mapping[str, LiveBroker]:
        """Address -> broker, for logs and metrics."""
        return dict(self._live)

    @property
    def cluster_count(self) -> int:
        return len(self._clusters)

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    @property
    def route_count(self) -> int:
        """Pairs of a topic and a broker that has it."""
        return self._route_count

    def brokers_of(self, topic: str) -> Set[str]:
        """The names of the brokers that have the topic; a view."""
        return self._topics.get(topic, {}).keys()

    def _seen(self, addr: str, viewer: Viewer) -> str:
        live = self._live.get(addr)
        return addr if live is None else viewer.sees(addr, live.reach.advertised)

    def _seen_broker(self, broker: BrokerData, viewer: Viewer) -> BrokerData:
        """Return a copy, with the addresses for who asks."""
        addrs = {broker_id: self._seen(addr, viewer) for broker_id, addr in broker.broker_addrs.items()}
        return BrokerData(cluster=broker.cluster, broker_name=broker.broker_name, broker_addrs=addrs)
