"""Base of the admin client: its lifetime, requests to one server and to all servers, and their errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from rocketpy import aio
from rocketpy.client.cluster.brokers import Brokers
from rocketpy.client.cluster.instance import ClientInstance
from rocketpy.client.cluster.lifetime import Lifetime, Open, build_client_id
from rocketpy.client.options import ClientOptions, ProducerOptions
from rocketpy.codes import RequestCode
from rocketpy.errors import ClientError, RocketError
from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FRAME_SIZE_MAX
from rocketpy.remoting.schema import Header

TIMEOUT_S = 5.0
TO_THE_END = -1  # a timestamp that means the end of the queue
AT_ONCE_BYTES_MAX = 65_536  # of an answer; a longer one is read in a thread
ANSWER_OBJECTS_MAX = 400_000  # in one answer: tables of 16 MiB have fewer

B = TypeVar("B", bound=Body)


async def read_answer(kind: type[B], body: bytes | None, bytes_max: int = FRAME_SIZE_MAX) -> B:
    """Read the body of a broker's answer. A broker may be a stranger's, who has registered it in an open name server: a
    long answer is read in a thread, and other tasks go on.

    Raises:
        BodyInvalid: it is malformed, or has more than `bytes_max` bytes or ANSWER_OBJECTS_MAX objects.
    """
    if len(body or b"") <= AT_ONCE_BYTES_MAX:
        return kind.decode(body)
    return await aio.in_thread(kind.decode_report, body, bytes_max, ANSWER_OBJECTS_MAX)


class PartialFailure(RocketError):
    """The operation succeeded on some servers only."""

    def __init__(self, failures: Mapping[str, RocketError], succeeded: Sequence[str]) -> None:
        self.failures = failures
        self.succeeded = succeeded
        text = "; ".join(f"{address}: {error}" for address, error in failures.items())
        super().__init__(f"{len(failures)} of {len(failures) + len(succeeded)} servers failed: {text}")


class NotFound(RocketError):
    """The requested object does not exist."""


class AdminCore:
    """An operator's client. Brokers never see it in a group: it sends no heartbeats.

    Args:
        timeout: seconds for ordinary requests.
        options: as of a producer; by default the name servers are the environment's NAMESRV_ADDR.
        lifetime: for tests: how connections, clocks and randomness are made.
        settings: single options by their names, `name_servers="host:port;host:port"` above all.
    """

    def __init__(
        self,
        *,
        timeout: float = TIMEOUT_S,
        options: ClientOptions | None = None,
        lifetime: Lifetime | None = None,
        **settings: Any,
    ) -> None:
        self.options = attrs.evolve(options, **settings) if options else ProducerOptions(**settings)
        self.timeout_s = timeout
        self.client_id = lifetime.client_id if lifetime is not None else build_client_id(self.options)
        self._lifetime = lifetime or Lifetime(self.options, self.client_id)
        self._open: Open | None = None

    async def __aenter__(self) -> Self:
        self._open = await self._lifetime.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._open is not None
        opened, self._open = self._open, None
        return await opened.close(kind, error, trace)

    @property
    def opened(self) -> Open:
        if self._open is None:
            raise ClientError("the admin client is not running: use it within `async with`")
        return self._open

    @property
    def instance(self) -> ClientInstance:
        return self.opened.instance

    @property
    def brokers(self) -> Brokers:
        """Requests about single queues."""
        return Brokers(self.instance)

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """A successful answer of one server. Raises BrokerError, TransportError."""
        return await self.instance.api.ask(address, code, header, body, timeout_s=timeout_s or self.timeout_s)

    async def ask_name_server(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        return await self.instance.api.ask_name_server(code, header, timeout_s=self.timeout_s)

    async def each_name_server(
        self, code: RequestCode, header: Header | None = None, body: bytes | None = None
    ) -> dict[str, RemotingCommand]:
        """Answers by address. One that fails does not stop the others.

        Raises:
            PartialFailure: some failed.
            RocketError: all did.
        """
        addresses = await self.instance.api.name_servers.listed(self.timeout_s)
        return await each(addresses, lambda address: self.ask(address, code, header, body))


async def each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[RemotingCommand]]
) -> dict[str, RemotingCommand]:
    """Ask every address, one after the other; failures do not stop the round.

    Raises:
        PartialFailure: some failed.
        RocketError: all did; this is the first.
    """
    answers: dict[str, RemotingCommand] = {}
    failures: dict[str, RocketError] = {}
    for address in addresses:
        try:
            answers[address] = await ask(address)
        except RocketError as error:
            failures[address] = error
    if failures and answers:
        raise PartialFailure(failures, sorted(answers))
    if failures:
        raise next(iter(failures.values()))
    return answers
