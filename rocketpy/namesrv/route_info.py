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
- A master with automatic failover registers its epoch. It cannot replace a master of a newer one, and one that leaves
stays in routes until its successor registers (`LeavingMasters`).
- Unregistering removes the broker's own address only, whoever has its id now.
- A wiped write permission stays wiped when the broker registers other topics or again: until it is given back, or the
master unregisters, as it does when it stops (the reference gives it back with the next changed DataVersion).

Source: RocketMQ 4.9 `RouteInfoManager`. Different here: a connection that closes takes every broker that registered on
it (the reference takes one), and a connection that no broker registered on is not looked up by its remote address.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.bodies.route import MASTER_ID, BrokerData
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.work import result_of

from .registration import QUEUES, LiveBroker, MasterInfo, Reach, Registration, Viewer, packed
from .route_questions import TOPICS_PER_STEP, RouteQuestions

BROKER_EXPIRY_MS = 120_000  # BROKER_CHANNEL_EXPIRED_TIME: silence after which a broker is dropped
LEAVING_MS = 3_000
PERM_WRITE = 2
PERM_READ_WRITE = 6
NO_CONNECTION = -1  # of a broker that has left


@attrs.define(eq=False)
class LeavingMasters:
    """Masters with automatic failover that have left, and until when they stay in routes.

    In a switch-over the last master closes its connection, or registers as a slave, before the next one is ready. A
    client that asks for the route in between would find no master and fail a send; the last master passes sends on. So
    it keeps its id 0 for LEAVING_MS, or until the next master registers.
    """

    _until_ms: dict[str, int] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._until_ms)

    def leave(self, addr: str, now_ms: int) -> None:
        """Begin the time of a master that has left; it does not begin again."""
        self._until_ms.setdefault(addr, now_ms + LEAVING_MS)

    def forget(self, addr: str) -> None:
        """The address is a master's again, or is not registered any more."""
        self._until_ms.pop(addr, None)

    def has(self, addr: str) -> bool:
        return addr in self._until_ms

    def take_due(self, now_ms: int) -> list[str]:
        """Addresses whose time is over."""
        due = [addr for addr, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for addr in due:
            del self._until_ms[addr]
        return due


class RouteInfoManager(RouteQuestions):
    """The tables and every change to them."""

    def __init__(self) -> None:
        super().__init__()
        self._addrs_of: dict[int, set[str]] = {}  # connection -> what was last registered on it
        self._leaving = LeavingMasters()
        self._gone: set[str] = set()  # broker names whose topics are still to be removed
        self._wiped: set[str] = set()  # broker names without write permission; as many as administrators have named

    # --- brokers come -------------------------------------------------------------------------------------------------

    def register(self, registration: Registration, connection: int, now_ms: int) -> MasterInfo:
        """`registering` at once."""
        return result_of(self.registering(registration, connection, now_ms))

    def registering(
        self, registration: Registration, connection: int, now_ms: int
    ) -> Generator[None, None, MasterInfo]:
        """Register a broker, or refresh it. Returns: for a slave, its master.

        Its version is stored when all of its topics are registered. If it is removed meanwhile, the rest is ignored.

        Raises:
            RequestRefused: a newer master of its group is registered.
        """
        yield from self.forgetting()
        self._refuse_replaced_master(registration)
        name, addr = registration.broker_name, registration.broker_addr
        known = self._live.get(addr)
        if known is not None and known.broker_name != name:
            self._drop_addr(addr)  # the broker has another name now
            known = None
        is_first = self._put_addr(registration, now_ms)
        if registration.filter_servers:
            self._filter_servers[addr] = registration.filter_servers
        elif registration.filter_servers is not None:
            self._filter_servers.pop(addr, None)
        epoch = registration.master_epoch if registration.broker_id == MASTER_ID else self._epoch_of(addr)
        reach = Reach(registration.ha_server_addr, registration.advertised, registration.ha_advertised)
        live = LiveBroker(name, now_ms, connection, reach, epoch, registration.peer)
        self._forget_live(addr)
        self._live[addr] = live
        self._addrs_of.setdefault(connection, set()).add(addr)
        if registration.broker_id == MASTER_ID and (
            is_first or known is None or known.data_version != registration.data_version
        ):
            for number, (topic, config) in enumerate(registration.topics.items(), 1):
                queues = self._topics.setdefault(topic, {})
                self._route_count += name not in queues
                queues[name] = packed(config, removed_perm=PERM_WRITE if name in self._wiped else 0)
                if number % TOPICS_PER_STEP == 0:
                    yield
                    if self._live.get(addr) is not live:
                        return MasterInfo()
        live.data_version = registration.data_version
        is_master = registration.broker_id == MASTER_ID
        return MasterInfo() if is_master else self._master_of(name, addr, registration.viewer)

    def _refuse_replaced_master(self, registration: Registration) -> None:
        """Refuse a master that was paused or cut off, and does not know yet that its group has another one."""
        master = self._brokers.get(registration.broker_name)
        addr = None if master is None else master.broker_addrs.get(MASTER_ID)
        if registration.broker_id != MASTER_ID or addr is None or addr == registration.broker_addr:
            return
        newest, epoch = self._epoch_of(addr), registration.master_epoch
        if newest is not None and epoch is not None and epoch < newest:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{registration.broker_addr} was master of {registration.broker_name} in epoch {epoch}; {addr} is the "
                f"master of epoch {newest}",
            )

    def master_peer(self, broker_name: str) -> str:
        """Return the other end of the connection that the master of this name was registered on."""
        broker = self._brokers.get(broker_name)
        live = None if broker is None else self._live.get(broker.broker_addrs.get(MASTER_ID, ""))
        return "an unknown host" if live is None else live.peer

    def _epoch_of(self, addr: str) -> int | None:
        """The epoch that an address has registered as id 0; None: it is not, or without automatic failover."""
        live = self._live.get(addr)
        broker = self._brokers.get(live.broker_name) if live is not None else None
        is_master = broker is not None and broker.broker_addrs.get(MASTER_ID) == addr
        return live.master_epoch if live is not None and is_master else None

    def _put_addr(self, registration: Registration, now_ms: int) -> bool:
        """Enter the broker's address under its name and id. Returns: whether there was none."""
        name, addr, broker_id = registration.broker_name, registration.broker_addr, registration.broker_id
        self._clusters.setdefault(registration.cluster, set()).add(name)
        self._clusters_of.setdefault(name, set()).add(registration.cluster)
        broker = self._brokers.get(name)
        addrs = {} if broker is None else dict(broker.broker_addrs)
        if broker_id == MASTER_ID:
            self._leaving.forget(addr)
        elif self._epoch_of(addr) is not None:
            self._leaving.leave(addr, now_ms)
        is_leaving = self._leaving.has(addr)
        for other_id in [other for other, at in addrs.items() if at == addr and other != broker_id]:
            if other_id != MASTER_ID or not is_leaving:
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
        self, broker_addr: str, data_version: DataVersion, connection: int, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Return a pair: True if the broker should register again, and its known version. If it need not, the query
        counts as a sign of life.

        It should if its address was registered on another connection: that connection is closed soon, and takes the
        address with it, or belongs to somebody else.
        """
        live = self._live.get(broker_addr)
        if live is None:
            return True, None
        changed = live.data_version != data_version or live.connection != connection
        if not changed:
            live.last_update_ms = now_ms
        return changed, live.data_version

    def _master_of(self, broker_name: str, own_addr: str, viewer: Viewer) -> MasterInfo:
        """Return the master of a slave. It is not the slave itself, which may have been the last one."""
        addr = self._brokers[broker_name].broker_addrs.get(MASTER_ID)
        live = self._live.get(addr) if addr is not None else None
        if addr is None or live is None or addr == own_addr:
            return MasterInfo()
        reach = live.reach
        return MasterInfo(viewer.sees(addr, reach.advertised), viewer.sees(reach.ha_server_addr, reach.ha_advertised))

    # --- brokers go ---------------------------------------------------------------------------------------------------

    def unregister(self, broker_addr: str) -> None:
        """Code 104: a broker that stops says so. Another broker may have its id by now: only the address goes."""
        live = self._live.get(broker_addr)
        if live is not None:
            broker = self._brokers.get(live.broker_name)
            if broker is not None and broker.master_addr == broker_addr:
                self._wiped.discard(live.broker_name)
            self._drop_addr(broker_addr)
        self._forget_if_few()

    def connection_closed(self, connection: int, now_ms: int) -> list[str]:
        """Remove brokers that last registered on `connection`. Returns their addresses."""
        gone = sorted(self._addrs_of.get(connection, ()))
        for addr in gone:
            if self._epoch_of(addr) is None:
                self._drop_addr(addr)
            else:
                self._leaving.leave(addr, now_ms)
                self._move(addr, NO_CONNECTION)
        self._forget_if_few()
        return gone

    @property
    def has_leaving(self) -> bool:
        """Return True while a master that has left is in routes."""
        return bool(self._leaving)

    def drop_leaving(self, now_ms: int) -> list[str]:
        """Remove masters that have left and were not replaced in time. Returns their addresses."""
        due = [addr for addr in self._leaving.take_due(now_ms) if addr in self._live]
        for addr in due:
            live = self._live[addr]
            if live.connection == NO_CONNECTION:
                self._drop_addr(addr)
            elif self._epoch_of(addr) is not None:
                broker = self._brokers[live.broker_name]
                self._keep_addrs(broker, {at: each for at, each in broker.broker_addrs.items() if at != MASTER_ID})
        self._forget_if_few()
        return due

    def expire(self, now_ms: int) -> list[tuple[str, int]]:
        """Remove brokers that were silent for too long. Returns (address, connection to close) of each."""
        silent_ms = now_ms - BROKER_EXPIRY_MS
        gone = [(addr, live.connection) for addr, live in self._live.items() if live.last_update_ms < silent_ms]
        for addr, _ in gone:
            self._drop_addr(addr)
        self._forget_if_few()
        return gone

    def forgive_silence(self, now_ms: int) -> None:
        """Give every broker two minutes from now to register, because this process was paused."""
        for live in self._live.values():
            live.last_update_ms = now_ms

    def _drop_addr(self, addr: str) -> None:
        """Remove an address from all tables; the cost does not depend on the number of brokers."""
        broker = self._brokers.get(self._live[addr].broker_name)
        self._forget_live(addr)
        self._leaving.forget(addr)
        self._filter_servers.pop(addr, None)
        if broker is not None:
            self._keep_addrs(broker, {at: other for at, other in broker.broker_addrs.items() if other != addr})

    def _move(self, addr: str, connection: int) -> None:
        live = self._live[addr]
        _discard(self._addrs_of, live.connection, addr)
        live.connection = connection
        self._addrs_of.setdefault(connection, set()).add(addr)

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
        """Return True if topics of removed brokers are left."""
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

    # --- changes by administrators ------------------------------------------------------------------------------------

    def wipe_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Code 205: producers turn away from the broker. Returns how many topics."""
        if broker_name in self._brokers:
            self._wiped.add(broker_name)
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Code 327: set the permission of all topics of a broker to read and write, as the reference does."""
        self._wiped.discard(broker_name)
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
