"""The route tables of the name server: which brokers serve which topic. In memory only, rebuilt by registrations.

    topics    topic -> broker name -> packed QueueData what a master last said of its topics
    brokers   broker name -> BrokerData                cluster, and broker id -> "ip:port"
    clusters  cluster -> broker names
    live      "ip:port" -> LiveBroker                  when it last spoke, on which connection, its DataVersion

Pure values: no clock (`now_ms` is an argument), no sockets (a connection is a number). Results are copies. Work over
many topics is done in steps (remoting/work.py): other requests may read and change the tables between steps, but only
one registration or one `forgetting` runs at a time.

Rules that may surprise:
- An address belongs to one broker name, and a broker has live addresses only: the limit of addresses also limits
brokers.
- Only masters (id 0) register topics; a slave only adds its address to the routes.
- A topic that is missing from a registration stays. It goes with its last broker, or by DELETE_TOPIC_IN_NAMESRV.
- A removed broker is in no answer any more; its topics are removed from a large table in steps, by `forgetting`.
- A broker is removed with the connection that it last registered on, not by its address: a broker that has registered
again on another connection stays when the old one closes.

Source: RocketMQ 4.9 `RouteInfoManager`. Different here: a connection that closes takes every broker that registered on
it (the reference takes one), and a connection that no broker registered on is not looked up by its remote address.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Set
from typing import Any

from rocketpy.remoting.bodies.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.work import result_of

from .queue_entry import QUEUES, packed, unpacked
from .registration import LiveBroker, MasterInfo, Registration

BROKER_EXPIRY_MS = 120_000  # BROKER_CHANNEL_EXPIRED_TIME: silence after which a broker is dropped
PERM_WRITE = 2
PERM_READ_WRITE = 6
TOPIC_UNIT = 1  # topicSysFlag bits (TopicSysFlag)
TOPIC_UNIT_SUB = 2
TOPICS_PER_STEP = 500
UNKNOWN_VERSION = DataVersion(counter=-(1 << 63), timestamp_ms=0)  # of a broker whose topics are being registered


class RouteInfoManager:
    """The tables and every change to them."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, bytes]] = {}
        self._route_count = 0  # entries of all topics: pairs of topic and broker
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._clusters_of: dict[str, set[str]] = {}  # broker name -> its clusters
        self._live: dict[str, LiveBroker] = {}
        self._addrs_of: dict[int, set[str]] = {}  # connection -> what was last registered on it
        self._filter_servers: dict[str, tuple[str, ...]] = {}
        self._gone: set[str] = set()  # broker names whose topics are still to be removed

    # --- brokers come -------------------------------------------------------------------------------------------------

    def register(self, registration: Registration, connection: int, now_ms: int) -> MasterInfo:
        """`registering` at once."""
        return result_of(self.registering(registration, connection, now_ms))

    def registering(
        self, registration: Registration, connection: int, now_ms: int
    ) -> Generator[None, None, MasterInfo]:
        """Register a broker, or refresh it. Returns: for a slave, its master.

        Its version is stored when all of its topics are registered. If it is removed meanwhile, the rest is ignored.
        """
        yield from self.forgetting()
        name, addr = registration.broker_name, registration.broker_addr
        known = self._live.get(addr)
        if known is not None and known.broker_name != name:
            self._drop_addr(addr)  # the broker has another name now
            known = None
        is_first = self._put_addr(registration)
        if registration.filter_servers:
            self._filter_servers[addr] = registration.filter_servers
        elif registration.filter_servers is not None:
            self._filter_servers.pop(addr, None)
        live = LiveBroker(name, now_ms, UNKNOWN_VERSION, connection, registration.ha_server_addr)
        self._forget_live(addr)
        self._live[addr] = live
        self._addrs_of.setdefault(connection, set()).add(addr)
        if registration.broker_id == MASTER_ID and (
            is_first or known is None or known.data_version != registration.data_version
        ):
            for number, (topic, config) in enumerate(registration.topics.items(), 1):
                queues = self._topics.setdefault(topic, {})
                self._route_count += name not in queues
                queues[name] = packed(config)
                if number % TOPICS_PER_STEP == 0:
                    yield
                    if self._live.get(addr) is not live:
                        return MasterInfo()
        live.data_version = registration.data_version
        return MasterInfo() if registration.broker_id == MASTER_ID else self._master_of(name)

    def _put_addr(self, registration: Registration) -> bool:
        """Enter the broker's address under its name and id. Returns: whether there was none."""
        name, addr, broker_id = registration.broker_name, registration.broker_addr, registration.broker_id
        self._clusters.setdefault(registration.cluster, set()).add(name)
        self._clusters_of.setdefault(name, set()).add(registration.cluster)
        broker = self._brokers.get(name)
        addrs = {} if broker is None else dict(broker.broker_addrs)
        for other_id in [other for other, at in addrs.items() if at == addr and other != broker_id]:
            del addrs[other_id]  # the same broker in another role: a slave that became master, or the reverse
        is_first = broker_id not in addrs
        addrs[broker_id] = addr
        cluster = registration.cluster if broker is None else broker.cluster
        self._brokers[name] = BrokerData(cluster=cluster, broker_name=name, broker_addrs=addrs)
        return is_first

    def has_broker(self, broker_addr: str) -> bool:
        return broker_addr in self._live

    def clusters_of(self, broker_name: str) -> frozenset[str]:
        """All clusters that the broker has registered with."""
        return frozenset(self._clusters_of.get(broker_name, ()))

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def query_data_version(
        self, broker_addr: str, data_version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Whether the broker should register again, and its known version. If not, the query counts as a sign of
        life."""
        live = self._live.get(broker_addr)
        if live is None:
            return True, None
        changed = live.data_version != data_version
        if not changed:
            live.last_update_ms = now_ms
        return changed, live.data_version

    def _master_of(self, broker_name: str) -> MasterInfo:
        addr = self._brokers[broker_name].broker_addrs.get(MASTER_ID)
        live = self._live.get(addr) if addr is not None else None
        return MasterInfo() if live is None else MasterInfo(addr, live.ha_server_addr)

    # --- brokers go ---------------------------------------------------------------------------------------------------

    def unregister(self, broker_name: str, broker_addr: str, broker_id: int) -> None:
        """Code 104: a broker that stops says so."""
        if broker_addr in self._live:
            self._drop_addr(broker_addr)
        broker = self._brokers.get(broker_name)
        if broker is not None:
            self._keep_addrs(broker, {at: addr for at, addr in broker.broker_addrs.items() if at != broker_id})
        self._forget_if_few()

    def connection_closed(self, connection: int) -> list[str]:
        """Remove brokers that last registered on `connection`. Returns their addresses."""
        gone = sorted(self._addrs_of.get(connection, ()))
        for addr in gone:
            self._drop_addr(addr)
        self._forget_if_few()
        return gone

    def expire(self, now_ms: int) -> list[tuple[str, int]]:
        """Remove brokers that were silent for too long. Returns (address, connection to close) of each."""
        silent_ms = now_ms - BROKER_EXPIRY_MS
        gone = [(addr, live.connection) for addr, live in self._live.items() if live.last_update_ms < silent_ms]
        for addr, _ in gone:
            self._drop_addr(addr)
        self._forget_if_few()
        return gone

    def forgive_silence(self, now_ms: int) -> None:
        """This process was paused: every broker has two minutes from now to register."""
        for live in self._live.values():
            live.last_update_ms = now_ms

    def _drop_addr(self, addr: str) -> None:
        """Remove an address from all tables; the cost does not depend on the number of brokers."""
        broker = self._brokers.get(self._live[addr].broker_name)
        self._forget_live(addr)
        self._filter_servers.pop(addr, None)
        if broker is not None:
            self._keep_addrs(broker, {at: other for at, other in broker.broker_addrs.items() if other != addr})

    def _forget_live(self, addr: str) -> None:
        live = self._live.pop(addr, None)
        if live is not None:
            _discard(self._addrs_of, live.connection, addr)

    def _keep_addrs(self, broker: BrokerData, addrs: dict[int, str]) -> None:
        """Set the addresses of `broker`; without any, remove it from its clusters and all topics."""
        name = broker.broker_name
        if addrs:
            self._brokers[name] = BrokerData(cluster=broker.cluster, broker_name=name, broker_addrs=addrs)
            return
        del self._brokers[name]
        for cluster in self._clusters_of.pop(name, ()):
            _discard(self._clusters, cluster, name)
        self._gone.add(name)

    def _forget_if_few(self) -> None:
        """Remove topics at once if that is a single step; otherwise `forgetting` does it."""
        if self._gone and len(self._topics) <= TOPICS_PER_STEP:
            result_of(self.forgetting())

    @property
    def has_gone_brokers(self) -> bool:
        """Whether topics of removed brokers are left."""
        return bool(self._gone)

    def forgetting(self) -> Generator[None, None, None]:
        """Remove the topics of removed brokers."""
        while self._gone:
            names = set(self._gone)
            for number, topic in enumerate(list(self._topics), 1):
                for name in names.intersection(self._topics.get(topic, ())):
                    self._remove_queues(topic, name)
                if number % TOPICS_PER_STEP == 0:
                    yield
            self._gone -= names

    def _remove_queues(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        self._route_count -= queues.pop(broker_name, None) is not None
        if not queues:
            del self._topics[topic]

    # --- questions ----------------------------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        """Code 105: queues and addresses; None when there is no such topic or none of its brokers is known."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        queues = {name: queue for name, queue in queues.items() if name in self._brokers}
        brokers = [self._brokers[name] for name in queues]
        if not brokers:
            return None
        filter_servers = {
            addr: list(self._filter_servers[addr])
            for broker in brokers
            for addr in broker.broker_addrs.values()
            if addr in self._filter_servers
        }
        return TopicRouteData(
            queue_datas=[unpacked(name, queue) for name, queue in queues.items()],
            broker_datas=[_copy(broker) for broker in brokers],
            filter_server_table=filter_servers,
        )

    def cluster_info(self) -> ClusterInfo:
        """Code 106."""
        return ClusterInfo(
            broker_addr_table={name: _copy(broker) for name, broker in self._brokers.items()},
            cluster_addr_table={cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def topics(self) -> Generator[None, None, list[str]]:
        """Code 206."""
        return self._topics_where(lambda queues: not self._brokers.keys().isdisjoint(queues))

    def topics_of_cluster(self, cluster: str) -> Generator[None, None, list[str]]:
        """Code 224; nothing for a cluster that is not known."""
        names = frozenset(self._clusters.get(cluster, ()))
        return self._topics_where(lambda queues: not names.isdisjoint(queues))

    def system_topics(self) -> tuple[list[str], str | None]:
        """Code 304: names of clusters and brokers (each is a topic), and the address of a broker to ask for more."""
        names = [*self._clusters, *self._brokers]
        addrs = (addr for broker in self._brokers.values() for addr in broker.broker_addrs.values())
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

    # --- changes by administrators ------------------------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Code 205: producers turn away from the broker, until its topics change. Returns how many topics."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Code 327: sets read and write, whatever it was before, as the reference does."""
        return self._change_perm(broker_name, lambda perm: PERM_READ_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> Generator[None, None, int]:
        count = 0
        for number, topic in enumerate(list(self._topics), 1):
            queues = self._topics.get(topic, {})
            queue = queues.get(broker_name)
            if queue is not None and broker_name in self._brokers:
                read_queues, write_queues, perm, flag = QUEUES.unpack(queue)
                queues[broker_name] = QUEUES.pack(read_queues, write_queues, change(perm), flag)
                count += 1
            if number % TOPICS_PER_STEP == 0:
                yield
        return count

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Code 216: forget a topic, or its queues on the brokers of one cluster."""
        if cluster is None:
            self._route_count -= len(self._topics.pop(topic, ()))
            return
        for name in self._clusters.get(cluster, set()):
            if topic in self._topics:
                self._remove_queues(topic, name)


def _discard(table: dict[Any, set[str]], key: object, member: str) -> None:
    """Take a member out of a set of `table`, and the set when it is empty."""
    table[key].discard(member)
    if not table[key]:
        del table[key]


def _copy(broker: BrokerData) -> BrokerData:
    return BrokerData(cluster=broker.cluster, broker_name=broker.broker_name, broker_addrs=dict(broker.broker_addrs))
