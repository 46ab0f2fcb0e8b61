"""A group of real brokers with automatic failover: members, their etcd and name server, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from rocketpy.message.record import decode_records
from rocketpy.remoting.signature import Credentials
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.store.control_block import ControlView
from tests.support import preloaded
from tests.support.broker import RunningBroker, free_ports
from tests.support.etcd import EtcdCluster, etcd_cluster
from tests.support.history import PULL_FOUND, pull_request
from tests.support.pair import LoneBroker, NameServer, log_hashes

from .guard import CLIENT, Guard
from .history import NO_SLAVE, SUCCESS, History, Place
from .keys import WATCH_S, KeysInEtcd
from .network import CLIENTS, Network
from .places import QUEUES, TOPIC, Server, connected, key_of

LEASE_S = 3
PATIENCE_S = 120.0  # generous: the machine may be busy; nothing is measured here
SETTINGS = {
    "brokerName": "broker-a",
    "brokerRole": "SYNC_MASTER",
    "haMode": "automatic",
    "haLeaseSeconds": str(LEASE_S),
    "slaveTimeout": "1000",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxMessageSize": "65536",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "autoCreateTopicEnable": "true",
    "defaultTopicQueueNums": str(QUEUES),
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000",
}


@attrs.define
class Member(LoneBroker):
    """One broker of the group. `host` is its address, `prefix` how its command is run there."""

    name: str = ""
    host: str = "127.0.0.1"
    namesrv_host: str = "127.0.0.1"
    more_namesrv: str = ""  # behind the one of the group: ";HOST:PORT"
    prefix: list[str] = attrs.field(factory=list)
    tls: ssl.SSLContext | None = None  # of its clients; None: they are plain
    credentials: Credentials | None = None  # of its clients; None: they sign nothing

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def namesrv(self) -> str:
        return f"{self.namesrv_host}:{self.namesrv_port}{self.more_namesrv}"

    @property
    def server(self) -> Server:
        return Server(self.name, self.host, self.port, self.tls, self.credentials)

    def command(self) -> list[str]:
        return [*self.prefix, *super().command()]

    def begin(self) -> None:
        """Start it, and do not wait: it may need its peers to serve."""
        with self.log.open("ab") as log:
            self.process = preloaded.start(self.command(), log)

    def pids(self) -> dict[str, int]:
        """All processes of the broker: title to pid."""
        assert self.process is not None
        found, left = {}, [self.process.pid]
        while left:
            pid = left.pop()
            with contextlib.suppress(OSError):
                found[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
                for task in Path(f"/proc/{pid}/task").iterdir():
                    left += map(int, (task / "children").read_text().split())
        return found

    def signal_all(self, number: int) -> None:
        """To every process at once: they are one process group."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill_all(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.signal_all(signal.SIGKILL)
            self.process.wait(60)
            self.process = None

    def signal_worker(self, title: str, number: int) -> None:
        os.kill(self.pids()[title], number)

    def lose_store(self) -> None:
        """The disk is gone. The broker must not run."""
        assert self.process is None
        shutil.rmtree(self.store)


@attrs.define(eq=False, kw_only=True)
class Group(KeysInEtcd):
    members: dict[str, Member]
    namesrv: RunningBroker
    network: Network | None = None

    @property
    def servers(self) -> list[Server]:
        return [member.server for member in self.members.values()]

    def other(self, name: str) -> str:
        """Of a pair."""
        (found,) = self.members.keys() - {name}
        return found

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait_for(self, holds: Callable[[], object], what: str) -> None:
        """Until `holds()`; what etcd does not answer does not hold."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError):
                if holds():
                    return
            assert time.monotonic() < deadline, f"{what} did not come about"
            time.sleep(WATCH_S)

    def wait_for_master(self, among: Collection[str] = (), codes: Collection[int] = (SUCCESS,)) -> str:
        """Until a member (one of `among`, if there are any) has answered a send, after this call, with such a code."""
        begun = len(self.history.answers)

        def serving() -> list[str]:
            later = self.history.answers[begun:]
            return [each.member for each in later if each.code in codes and (not among or each.member in among)]

        self.wait_for(serving, f"an answer of {sorted(among) or 'a master'} with {sorted(codes)}")
        return serving()[-1]

    def wait_for_lone_master(self, name: str) -> None:
        """Until this member serves, if alone in sync: then producers are told that no slave has their messages."""
        self.wait_for_master({name}, (SUCCESS, NO_SLAVE))

    def wait_in_sync(self) -> None:
        """Until everybody that runs is in sync."""
        running = {name for name, member in self.members.items() if member.process is not None}
        self.wait_for(lambda: self._in_sync() == running, f"{sorted(running)} to be in sync")

    def wait_until_healed(self) -> None:
        """Until everybody that runs is in sync, and a send is acknowledged."""
        self.wait_in_sync()
        self.wait_for_master()

    def _in_sync(self) -> set[str]:
        state = self.state()
        return set(state.in_sync) if state is not None and self.master() == state.master else set()

    # --- the end ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """When senders have stopped and all faults are healed: hold everything against the history.

        Raises:
            AssertionError: a promise is broken.
        """
        self.wait_in_sync()
        for check in self.history.checks:
            check(self)
        stores = [member.store for member in self.members.values()]
        self.wait_for(lambda: len({tuple(log_hashes(store).items()) for store in stores}) == 1, "equal logs")
        self.wait_for(self.master, "a master")
        master = self.master() or ""
        self.wait_for(lambda: is_dispatched(self.members[master].store), "a unit of each message on the master")
        self.read_masterships()
        epochs = EpochFile(self.members[master].store).read()
        self.history.check(self.stored(self.members[master]), epochs)
        for member in sorted(self.members.values(), key=lambda member: member.name == master):  # it hands nothing on
            status = member.stop()
            assert status == 0, f"{member.name} stopped with status {status}:\n{member.text()[-4000:]}"
            done = preloaded.run([*preloaded.COMMAND, "store", "verify", str(member.store)], timeout=120)
            assert done.returncode == 0, f"the store of {member.name}:\n{done.stdout}{done.stderr}"

    def stored(self, member: Member, topic: str = TOPIC) -> dict[Place, str]:
        """Every message of a topic that a member shows."""
        found: dict[Place, str] = {}
        with connected(member.server, 10.0) as connection:
            for queue_id in range(QUEUES):
                offset = 0
                while (reply := connection.ask(pull_request(topic, queue_id, offset))).code == PULL_FOUND:
                    for record in decode_records(reply.body or b"", check_crc=True):
                        found[queue_id, record.queue_offset] = key_of(bytes(record.body))
                        offset = record.queue_offset + 1
        return found


def is_dispatched(store: Path) -> bool:
    """Whether each message of its log can be pulled. After a fault of the disk dispatch waits before it tries again."""
    view = ControlView(store / "control")
    try:
        return bool(view.header.dispatched_phy_offset == view.header.published_phy_offset)
    finally:
        view.close()


@contextmanager
def real_group(
    directory: Path,
    names: str = "ab",
    *,
    network: Network | None = None,
    etcd_members: int = 1,
    settings: dict[str, str] | None = None,
    history: History | None = None,
    arrange: Callable[[Member], None] = lambda member: None,
    before: Callable[[EtcdCluster], None] = lambda etcd: None,
    kind: type[NameServer] = NameServer,
    guard: Guard | None = None,
) -> Iterator[Group]:
    """A group whose members are all in sync. With `network` its places are the members and `etcd`.

    A failure within carries the story and the end of each log.

    Args:
        history: with the promises of the group; those of a synchronous one if there is none.
        arrange: may change a member before it is started for the first time.
        before: may change etcd before any member is started.
        kind: of name server.
        guard: name server and members then serve nobody without TLS and an account.
    """
    with ExitStack() as stack:
        place = {"host": network.address("etcd"), "prefix": network.command("etcd", [])} if network else {}
        (directory / "etcd").mkdir(exist_ok=True)
        etcd = stack.enter_context(etcd_cluster(directory / "etcd", etcd_members, **place))  # type: ignore[arg-type]  # two keys
        before(etcd)
        namesrv, members = _namesrv(directory, network, kind), {}
        if guard is not None:
            namesrv.settings |= guard.server("namesrv")
        stack.callback(namesrv.kill_all)
        namesrv.start()
        for number, name in enumerate(names, 1):
            members[name] = made_member(directory, names, name, number, etcd, namesrv, network, settings or {})
            if guard is not None:
                members[name].settings |= guard.member(name)
                members[name].tls, members[name].credentials = guard.context(), CLIENT
            arrange(members[name])
            stack.callback(members[name].kill_all)
        group = Group(etcd=etcd, history=history or History(), members=members, namesrv=namesrv, network=network)
        stack.callback(group.end)
        threading.Thread(target=group.watch, daemon=True).start()
        try:
            for member in members.values():
                member.begin()
            group.wait_in_sync()
            yield group
            for server in (namesrv, *group.members.values()):
                server.check_crashes()
        except BaseException as failure:
            failure.add_note(group.history.story())
            for member in members.values():
                failure.add_note(f"{member.name}:\n{member.text()[-6000:]}")
            raise
        finally:
            group.history.over.set()


def _namesrv(directory: Path, network: Network | None, kind: type[NameServer]) -> NameServer:
    _, port = free_ports()
    server = kind(directory / "namesrv", 0, port, directory / "namesrv.log", {})
    if network is not None:
        server.bind = network.address(CLIENTS)
    return server


def made_member(
    directory: Path,
    names: str,
    name: str,
    number: int,
    etcd: EtcdCluster,
    namesrv: NameServer,
    network: Network | None,
    settings: dict[str, str],
) -> Member:
    """A member of a group of `names`, not started."""
    port, _ = free_ports()
    own = {
        "brokerId": str(number),
        "haMember": name,
        "haMembers": ",".join(names),
        "haEtcdAddresses": ",".join(etcd.addresses),
    }
    if network is not None:
        host = network.address(name)
        own |= {"bindAddress": host, "brokerIP1": host, "haAddresses": network.subnet, "adminAddresses": network.subnet}
        secret = directory / "ha-secret"
        secret.write_text("the secret of this test's group\n")
        own["haSecretFile"] = str(secret)
    member = Member(directory / name, port, namesrv.namesrv_port, directory / f"{name}.log", SETTINGS | own | settings)
    member.name = name
    if network is not None:
        member.host, member.namesrv_host = network.address(name), network.address(CLIENTS)
        member.prefix = network.command(name, [])
    return member
