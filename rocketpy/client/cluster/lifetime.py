"""The resources of an open client: the nursery of its tasks, its connections, its instance; and its client id.

Groups know a client by its id, which begins with its address. The id must be unique in a group: two members with one id
compute the same share of the queues.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import attrs

from rocketpy import aio
from rocketpy.errors import ClientError
from rocketpy.message.message_id import UniqueIdGenerator
from rocketpy.transport.address_server import AddressLookup, ask_address_server
from rocketpy.transport.client import RemotingClient
from rocketpy.transport.connector import Connector, connect, tls_connector
from rocketpy.transport.limits import RECEIVE_SIZE, ChannelLimits

from ..options import ClientOptions, TlsOptions
from .api import MQClientAPI
from .broker_requests import SERVED_CODES, BrokerRequests
from .instance import ClientInstance, wall_clock_ms
from .jobs import Jobs
from .name_servers import NameServers

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 3.0
DEFAULT_INSTANCE_NAME = "DEFAULT"
SYSTEM_RANDOM = random.SystemRandom()  # has no state, and a random.Random of each client 2.5 KB
STREAM_SUFFIX = "@STREAM"  # pull consumers


def local_address() -> str:
    """The address that this host uses for outgoing connections; no packet is sent. 127.0.0.1 without a network."""
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                address = str(probe.getsockname()[0])
                return f"[{address}]" if family == socket.AF_INET6 else address
        except OSError:
            continue
    return "127.0.0.1"


def unique_instance_name(name: str) -> str:
    """DEFAULT becomes `<pid>#<ns>`; a name the user chose stays."""
    return f"{os.getpid()}#{time.monotonic_ns()}" if name == DEFAULT_INSTANCE_NAME else name


def build_client_id(options: ClientOptions, *, unique: bool = True, stream: bool = False) -> str:
    """`<ip>@<instance>[@<unit>][@STREAM]`; not unique for broadcasting, whose offset file is named by the id."""
    instance_name = unique_instance_name(options.instance_name) if unique else options.instance_name
    parts = [options.client_ip or local_address(), instance_name]
    if options.unit_name:
        parts.append(options.unit_name)
    return "@".join(parts) + (STREAM_SUFFIX if stream else "")


def _connector(tls: TlsOptions) -> Connector:
    """Raises ConfigError, which names the file that cannot be used."""
    from rocketpy.tls import trusting_context

    context = trusting_context(
        tls.ca_file,
        tls.certificate_file,
        tls.key_file,
        verify=tls.verify,
        password=tls.key_password,
        trusted_setting="TlsOptions.ca_file (mqadmin: --tls-ca)",
        certificate_setting="TlsOptions.certificate_file (mqadmin: --tls-cert)",
    )
    return tls_connector(lambda: context)


@attrs.define(eq=False)
class Lifetime:
    """Opens a client; tests pass their own clocks, randomness and streams."""

    options: ClientOptions
    client_id: str
    now_ms: Callable[[], int] = wall_clock_ms
    rng: random.Random = SYSTEM_RANDOM
    connector: Connector | None = None  # None: as the options say
    receive_size: int = RECEIVE_SIZE

    async def open(self) -> Open:
        """Open the nursery and its tasks. Nothing is connected yet.

        Raises:
            ConfigError: a file of the TLS options cannot be used.
        """
        tls = self.options.tls
        connector = self.connector or (_connector(tls) if tls is not None else connect)
        manager = aio.open_nursery(keeps_tasks=True)
        nursery = await manager.__aenter__()
        requests = BrokerRequests(nursery)
        remoting = RemotingClient(
            nursery,
            processors=dict.fromkeys(SERVED_CODES, requests),
            limits=ChannelLimits(receive_size=self.receive_size),
            connector=connector,
            connect_timeout_s=self.options.connect_timeout,
        )
        name_servers = NameServers.shuffled(remoting, self.options.name_server_list, self.rng)
        if self.options.address_server_url:
            lookup = AddressLookup(
                self.options.address_server_url,
                lambda found: name_servers.replace(found, self.rng),
                functools.partial(ask_address_server, connector=self.connector or connect),
            )
            name_servers.looked_up = aio.Event()
            nursery.start_soon(lookup.run)
        api = MQClientAPI(remoting, name_servers, self.options.credentials)
        instance = ClientInstance(self.options, self.client_id, api, self.rng, self.now_ms)
        address = (self.options.client_ip or local_address()).strip("[]")
        ids = UniqueIdGenerator(address, os.getpid(), self.rng.getrandbits(32))
        return Open(manager, nursery, remoting, instance, requests, ids)


@attrs.define(eq=False)
class Open:
    """An open client. Its tasks live in `nursery` and end with it."""

    _manager: AbstractAsyncContextManager[aio.OpenNursery]
    nursery: aio.OpenNursery
    remoting: RemotingClient
    instance: ClientInstance
    requests: BrokerRequests
    _ids: UniqueIdGenerator
    jobs: Jobs = attrs.field(init=False)
    _pid: int = attrs.field(init=False, factory=os.getpid)

    @jobs.default
    def _make_jobs(self) -> Jobs:
        return Jobs(self.nursery)

    def next_id(self) -> str:
        """A unique message id."""
        return self._ids.next_id(time.time())

    def start(self) -> None:
        """Begin the periodic jobs."""
        self.instance.start(self.jobs)

    def check_fork(self) -> None:
        """Raises ClientError in a forked child: connections and ids belong to the parent."""
        if os.getpid() != self._pid:
            raise ClientError(f"this client was opened in process {self._pid}; open another one after fork")

    async def close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Tell the brokers, close the connections, end the tasks.

        An error of the `async with` body is raised unchanged, not wrapped into a group: only cancellation, and errors
        of our own tasks, pass through the nursery.
        """
        try:
            await aio.shielded(UNREGISTER_TIMEOUT_S, self.instance.unregister)
        except BaseException as raised:
            await self._end(type(raised), raised, raised.__traceback__)
            raise
        return await self._end(kind, error, trace)

    async def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self.jobs.end()
        self.nursery.cancel()
        if error is None or not isinstance(error, Exception):
            return await self._manager.__aexit__(kind, error, trace)
        await self._manager.__aexit__(None, None, None)
        return None

    async def abort(self) -> None:
        """Undo a failed start."""
        await self.close(None, None, None)
