"""A group of real brokers with automatic failover: members, their etcd and name server, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from rocketpy.coordinator.gateway import Access, Gateway, decode, encode
from rocketpy.coordinator.group_keys import GroupKeys
from rocketpy.coordinator.operator import switch_master
from rocketpy.failover.records import GroupState, MasterRecord, from_json
from rocketpy.message.record import decode_records
from tests.support.broker import RunningBroker, free_ports
from tests.support.etcd import EtcdCluster, etcd_cluster
from tests.support.history import PULL_FOUND, Connection, pull_request
from tests.support.pair import LoneBroker, NameServer, log_hashes

from .clients import QUEUES, TOPIC, Server, key_of
from .history import NO_SLAVE, SUCCESS, History, Place
from .network import CLIENTS, Network

LEASE_S = 3
WATCH_S = 0.02
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
}


@attrs.define
class Member(LoneBroker):
    """One broker of the group. `host` is its address, `prefix` how its command is run there."""

    name: str = ""
    host: str = "127.0.0.1"
    namesrv_host: str = "127.0.0.1"
    prefix: list[str] = attrs.field(factory=list)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def namesrv(self) -> str:
        return f"{self.namesrv_host}:{self.namesrv_port}"

    @property
    def server(self) -> Server:
        return Server(self.name, self.host, self.port)

    def command(self) -> list[str]:
        return [*self.prefix, *super().command()]

    def begin(self) -> None:
        """Start it, and do not wait: it may need its peers to serve."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, start_new_session=True)

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


@attrs.define(eq=False)
class Group:
    members: dict[str, Member]
    etcd: EtcdCluster
    namesrv: RunningBroker
    history: History
    network: Network | None = None
    _stop: threading.Event = attrs.field(init=False, factory=threading.Event)

    @property
    def servers(self) -> list[Server]:
        return [member.server for member in self.members.values()]

    # --- etcd ---------------------------------------------------------------------------------------------------------

    def _read(self, name: str, revision: int = 0) -> tuple[bytes | None, int]:
        """(value of a key of the group, revision of etcd). Raises: OSError."""
        key = f"/rocketpy/DefaultCluster/broker-a/{name}".encode()
        body = json.dumps({"key": encode(key), "revision": str(revision)}).encode()
        url = f"{self.etcd.addresses[0]}/v3/kv/range"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        kvs = found.get("kvs", [])
        return decode(kvs[0]["value"]) if kvs else None, int(found["header"]["revision"])

    def state(self, revision: int = 0) -> GroupState | None:
        value, _ = self._read("state", revision)
        return None if value is None else from_json(GroupState, value)

    def epoch(self) -> int:
        """Of the last mastership; -1: there was none."""
        state = self.state()
        return -1 if state is None else state.epoch

    def master(self) -> str | None:
        """Who is alive as master."""
        value, _ = self._read("master")
        return None if value is None else from_json(MasterRecord, value).member

    def switch_over(self, target: str) -> None:
        """As an operator asks for it; returns when `target` is master."""

        async def switch() -> None:
            async with Gateway(Access(addresses=self.etcd.addresses, timeout_s=5.0)) as gateway:
                await switch_master(GroupKeys(gateway, "DefaultCluster", "broker-a"), target)

        trio.run(switch)

    def watch(self) -> None:
        """Tell the history of masterships, until the group ends. In a thread of its own."""
        while not self._stop.wait(WATCH_S):
            with contextlib.suppress(OSError):
                state = self.state()
                if state is not None:
                    self.history.appointed(state.epoch, state.master)

    def read_masterships(self) -> None:
        """From etcd's own history: also those that were too short to be seen."""
        _, newest = self._read("state")
        for revision in range(1, newest + 1):
            state = self.state(revision)
            if state is not None:
                self.history.appointed(state.epoch, state.master)

    def end(self) -> None:
        self._stop.set()

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
        stores = [member.store for member in self.members.values()]
        self.wait_for(lambda: len({tuple(log_hashes(store).items()) for store in stores}) == 1, "equal logs")
        self.wait_for(self.master, "a master")
        master = self.master() or ""
        self.read_masterships()
        self.history.check(self.stored(self.members[master]))
        for member in sorted(self.members.values(), key=lambda member: member.name == master):  # it hands nothing on
            status = member.stop()
            assert status == 0, f"{member.name} stopped with status {status}:\n{member.text()[-4000:]}"
            words = [sys.executable, "-m", "rocketpy", "store", "verify", str(member.store)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, f"the store of {member.name}:\n{done.stdout}{done.stderr}"

    def stored(self, member: Member) -> dict[Place, str]:
        """Every message of the topic that a member shows."""
        found: dict[Place, str] = {}
        connection = Connection(member.port, 10.0, member.host)
        for queue_id in range(QUEUES):
            offset = 0
            while (reply := connection.ask(pull_request(TOPIC, queue_id, offset))).code == PULL_FOUND:
                for record in decode_records(reply.body or b"", check_crc=True):
                    found[queue_id, record.queue_offset] = key_of(bytes(record.body))
                    offset = record.queue_offset + 1
        connection.close()
        return found


@contextmanager
def real_group(
    directory: Path,
    names: str = "ab",
    *,
    network: Network | None = None,
    etcd_members: int = 1,
    settings: dict[str, str] | None = None,
) -> Iterator[Group]:
    """A group whose members are all in sync. With `network` its places are the members and `etcd`.

    A failure within carries the story and the end of each log.
    """
    with ExitStack() as stack:
        place = {"host": network.address("etcd"), "prefix": network.command("etcd", [])} if network else {}
        (directory / "etcd").mkdir()
        etcd = stack.enter_context(etcd_cluster(directory / "etcd", etcd_members, **place))  # type: ignore[arg-type]  # two keys
        namesrv, members = _namesrv(directory, network), {}
        stack.callback(namesrv.kill_all)
        namesrv.start()
        for number, name in enumerate(names, 1):
            members[name] = _member(directory, names, name, number, etcd, namesrv, network, settings or {})
            stack.callback(members[name].kill_all)
        group = Group(members, etcd, namesrv, History(), network)
        stack.callback(group.end)
        threading.Thread(target=group.watch, daemon=True).start()
        try:
            for member in members.values():
                member.begin()
            group.wait_in_sync()
            yield group
        except BaseException as failure:
            failure.add_note(group.history.story())
            for member in members.values():
                failure.add_note(f"{member.name}:\n{member.text()[-6000:]}")
            raise


def _namesrv(directory: Path, network: Network | None) -> NameServer:
    _, port = free_ports()
    server = NameServer(directory / "namesrv", 0, port, directory / "namesrv.log", {})
    if network is not None:
        server.bind = network.address(CLIENTS)
    return server


def _member(
    directory: Path,
    names: str,
    name: str,
    number: int,
    etcd: EtcdCluster,
    namesrv: NameServer,
    network: Network | None,
    settings: dict[str, str],
) -> Member:
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
