"""The cluster that is measured: its brokers, and topics that live as long as a run."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.errors import ClientError, RocketError
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.signature import Credentials

VERSION, ROLE, FLUSH = "brokerVersionDesc", "brokerRole", "flushDiskType"


class BenchFailed(RocketError):
    """A benchmark cannot begin, or cannot go on."""


@attrs.frozen
class Access:
    """The way to the cluster: options of Admin and of clients."""

    name_servers: str
    tls: Any = None  # TlsOptions
    credentials: Credentials | None = None

    def options(self) -> dict[str, Any]:
        return {"name_servers": self.name_servers, "tls": self.tls, "credentials": self.credentials}


@attrs.frozen
class Cluster:
    """Masters of one cluster by broker name, and what they say of themselves."""

    access: Access
    name: str
    masters: Mapping[str, str]
    settings: Mapping[str, str]  # of the first of them: version, role, flush

    @contextlib.contextmanager
    def topics(self, count: int, queues: int) -> Iterator[list[str]]:
        """Make topics with fresh names on every master, and delete them at the end."""
        run = os.urandom(4).hex()
        names = [f"RocketpyBench-{run}-{number}" for number in range(count)]
        try:
            aio.run(self.make, names, queues)
            yield names
        finally:
            with contextlib.suppress(RocketError, OSError):  # the broker may be gone: the first error counts
                aio.run(self.delete, names)

    def described(self) -> dict[str, Any]:
        """Return what a result says of the system that was measured."""
        settings = {name: value for name, value in self.settings.items() if name != VERSION}
        version = self.settings.get(VERSION, "")
        return {"system": "rocketmq", "version": version, "masters": dict(self.masters), "settings": settings}

    async def check_slaves(self, count: int) -> None:
        """Raise BenchFailed: a master has fewer slaves connected."""
        async with Admin(**self.access.options()) as admin:
            for address in self.masters.values():
                status = await admin.ha_status(address)
                connected = len(status.ha_connection_info) if status is not None else 0
                if connected < count:
                    raise BenchFailed(f"{address} has {connected} of {count} slaves")

    async def make(self, names: Sequence[str], queues: int) -> None:
        """Create topics on every master."""
        async with Admin(**self.access.options()) as admin:
            for address in self.masters.values():
                for name in names:
                    config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
                    await admin.create_topic(address, config)

    async def ends(self, names: Sequence[str], queues: int) -> dict[str, list[int]]:
        """Return the ends of all queues of some topics, topic by topic, by the address of the master."""
        async with Admin(**self.access.options()) as admin:
            stats = [await admin.topic_stats(name) for name in names]
        places = [
            {(queue.broker_name, queue.queue_id): one.max_offset for queue, one in each.items()} for each in stats
        ]
        return {
            address: [each.get((broker, queue), 0) for each in places for queue in range(queues)]
            for broker, address in self.masters.items()
        }

    async def delete(self, names: Sequence[str]) -> None:
        async with Admin(**self.access.options()) as admin:
            for name in names:
                await admin.delete_topic(name, self.name)


def find(access: Access, wanted: str | None = None) -> Cluster:
    """Return the cluster behind these name servers: the one called `wanted`, or the only one.

    Raises:
        RocketError: the name servers do not answer, or know no such cluster.
    """
    return aio.run(_find, access, wanted)


async def _find(access: Access, wanted: str | None) -> Cluster:
    async with Admin(**access.options()) as admin:
        info = await admin.cluster_info()
        names = sorted(info.cluster_addr_table)
        if not names:
            raise ClientError(f"no broker has registered with {access.name_servers}")
        if wanted is None and len(names) > 1:
            raise ClientError(f"the name servers know several clusters: choose with --cluster: {', '.join(names)}")
        name = wanted or names[0]
        if name not in info.cluster_addr_table:
            raise ClientError(f"the name servers know no cluster {name}, only {', '.join(names)}")
        tables = {broker: info.broker_addr_table[broker].broker_addrs for broker in info.cluster_addr_table[name]}
        masters = {broker: addresses[0] for broker, addresses in sorted(tables.items()) if 0 in addresses}
        if not masters:
            raise ClientError(f"no broker of cluster {name} is a master")
        return Cluster(access, name, masters, await _settings(admin, next(iter(masters.values()))))


async def _settings(admin: Admin, address: str) -> dict[str, str]:
    runtime, config = await admin.runtime_info(address), await admin.broker_config(address)
    return {VERSION: runtime.get(VERSION, ""), **{key: config.get(key, "") for key in (ROLE, FLUSH)}}


def numeric(address: str) -> tuple[str, int]:
    """Return IPv4 address and port of `host:port`. Raises: BenchFailed: it has none."""
    host, _, port = address.rpartition(":")
    try:
        return socket.gethostbyname(host.strip("[]")), int(port)
    except (OSError, ValueError) as error:
        raise BenchFailed(
            f"the native generator needs an IPv4 address, and the broker is {address}: {error}"
        ) from error
