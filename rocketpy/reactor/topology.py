"""All workers and the rings between them: blocks, rings and handoff sockets, created before the first fork.

    acceptor =fd=> selector i -FRAME-> codec j -SEND-> send, -PULL-> pull k, -COMMAND-> manager, query l
                   selector i, replicator =fd=> tls m, which serves TLS between them and client or slave
    send, pull k, manager, query l, codec j -REPLY-> selector i
    send <-> manager <-> pull k, store <-> manager, store -> pull k, store -> send, manager -> query l
    replicator -LOG-> send, on a slave

With codec_workers = 0 a selector decodes its own requests: its rings lead directly to the workers that serve them, and
one leads back to itself for requests that it refuses while decoding.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from rocketpy.errors import ConfigError
from rocketpy.native.core import lib

from .handoff import handoff_pair
from .pools import MANAGER, PULL, QUERY, SEND
from .ring import Ring, WorkerBlock

__all__ = [
    "ACCEPTOR",
    "MANAGER",
    "PULL",
    "QUERY",
    "REPLICATOR",
    "SEND",
    "STORE",
    "TLS",
    "ReactorSizes",
    "SelectorDeaths",
    "Topology",
]

MIB = 1024 * 1024
RING_BYTES_MIN = 65_536
LOG_RING_BYTES_MIN = 1 * MIB  # the replicator's: a message is 128 KiB of a log, and takes a quarter at most
ACCEPTOR, STORE, REPLICATOR, TLS = "acceptor", "store", "replicator", "tls"
STEPS_PER_TURN = 100  # connections of a dead selector that are dropped at once


@attrs.frozen(kw_only=True)
class ReactorSizes:
    """Number of workers of each kind, and the shared memory of their rings."""

    selector_workers: int = attrs.field(default=1, validator=attrs.validators.in_(range(1, 128)))
    spare_selectors: int = attrs.field(default=0, validator=attrs.validators.in_(range(127)))
    """Selectors that are started when all others are full; see `with_spares`."""
    codec_workers: int = attrs.field(default=1, validator=attrs.validators.ge(0))
    pull_workers: int = attrs.field(default=1, validator=attrs.validators.in_(range(1, lib.RP_PULL_WORKERS_MAX + 1)))
    query_workers: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """0: the manager serves queries."""
    tls_workers: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    """0: the ports speak no TLS."""
    is_slave: bool = False
    """True: a replicator brings the log of a master."""
    ring_bytes: int = 1 * MIB
    """Bytes of a ring that carries messages; a power of two. It is halved until all rings fit `shared_bytes_max`."""
    shared_bytes_max: int = 64 * MIB

    @property
    def selectors(self) -> tuple[str, ...]:
        """The names of all selectors; spare selectors come last."""
        return tuple(f"selector-{n}" for n in range(self.selector_workers + self.spare_selectors))

    @property
    def spares(self) -> tuple[str, ...]:
        """The names of the spare selectors."""
        return self.selectors[self.selector_workers :]

    @property
    def codecs(self) -> tuple[str, ...]:
        return tuple(f"codec-{n}" for n in range(self.codec_workers))

    @property
    def tls(self) -> tuple[str, ...]:
        return tuple(f"{TLS}-{n}" for n in range(self.tls_workers))

    @property
    def pulls(self) -> tuple[str, ...]:
        """The names of the pull workers, in the order of csrc/ipc/worker.h."""
        return (PULL,) if self.pull_workers == 1 else tuple(f"{PULL}-{n}" for n in range(self.pull_workers))

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(f"{QUERY}-{n}" for n in range(self.query_workers))

    @property
    def servers(self) -> tuple[str, ...]:
        """Workers that serve requests."""
        return (SEND, *self.pulls, MANAGER, *self.queries)

    @property
    def decoders(self) -> tuple[str, ...]:
        """Names of the workers that decode frames."""
        return self.codecs or self.selectors

    @property
    def workers(self) -> tuple[str, ...]:
        return (ACCEPTOR, *self.selectors, *self.codecs, *self.servers, STORE, REPLICATOR, *self.tls)


@attrs.frozen
class Wire:
    """One ring: its producer, its consumer, its size in relation to `ring_bytes`, and its least size in bytes."""

    producer: str
    consumer: str
    share: float = 1.0
    at_least: int = RING_BYTES_MIN


def wires(sizes: ReactorSizes) -> Iterator[Wire]:
    """All rings. Their order is the order of each worker's inputs and outputs."""
    halved = {*sizes.pulls, *sizes.queries}  # pulls are small, and so are queries
    for selector in sizes.selectors:
        for codec in sizes.codecs:
            yield Wire(selector, codec)
    for decoder in sizes.decoders:
        for server in sizes.servers:
            yield Wire(decoder, server, 0.5 if server in halved else 1.0)
        for selector in sizes.selectors:
            if decoder == selector or sizes.codecs:
                yield Wire(decoder, selector, 0.125)
    for server in sizes.servers:
        for selector in sizes.selectors:
            yield Wire(server, selector, 0.5 if server in sizes.pulls else 1.0)
    yield Wire(SEND, MANAGER)
    yield Wire(MANAGER, SEND)
    for pull in sizes.pulls:
        yield Wire(pull, MANAGER, 0.25)
        yield Wire(MANAGER, pull, 0.25)
        yield Wire(STORE, pull, 0.25)
    for query in sizes.queries:
        yield Wire(MANAGER, query, 0.125)
    if sizes.is_slave:
        yield Wire(REPLICATOR, SEND, at_least=LOG_RING_BYTES_MIN)
    yield Wire(STORE, SEND, 0.125)
    yield Wire(STORE, MANAGER, 0.125)
    yield Wire(MANAGER, STORE, 0.125)


def capacities(sizes: ReactorSizes) -> Mapping[tuple[str, str], int]:
    """Bytes of each ring, (producer, consumer) -> capacity.

    Raises:
        ConfigError: even the smallest rings are too many for `shared_bytes_max`.
    """
    return _plan(sizes, _ring_bytes(sizes))


def _plan(sizes: ReactorSizes, ring_bytes: int) -> dict[tuple[str, str], int]:
    return {(wire.producer, wire.consumer): max(wire.at_least, int(ring_bytes * wire.share)) for wire in wires(sizes)}


def _ring_bytes(sizes: ReactorSizes) -> int:
    """Return the largest size of rings with which all of them fit."""
    ring_bytes = sizes.ring_bytes
    if ring_bytes < RING_BYTES_MIN or ring_bytes & (ring_bytes - 1):
        raise ConfigError(f"{ring_bytes} bytes; a power of two, at least {RING_BYTES_MIN}, is needed", key="ringSize")
    while True:
        plan = _plan(sizes, ring_bytes)
        total = sum(plan.values())
        if total <= sizes.shared_bytes_max:
            return ring_bytes
        if ring_bytes == RING_BYTES_MIN:
            raise ConfigError(
                f"{len(plan)} rings take {total} bytes, more than {sizes.shared_bytes_max}; "
                "use fewer selectorWorkers, codecWorkers, pullWorkers or queryWorkers, or a larger sharedMemoryMax",
                key="sharedMemoryMax",
            )
        ring_bytes //= 2


def with_spares(sizes: ReactorSizes, wanted: int) -> ReactorSizes:
    """Return `sizes` with so many spare selectors, or fewer: the rings of the others do not shrink for them.

    Raises:
        ConfigError: as `capacities`.
    """
    ring_bytes = _ring_bytes(sizes)
    wider = (attrs.evolve(sizes, spare_selectors=spares) for spares in range(wanted, 0, -1))
    fitting = (each for each in wider if sum(_plan(each, ring_bytes).values()) <= each.shared_bytes_max)
    return next(fitting, sizes)


@attrs.frozen(eq=False)
class Topology:
    """Everything that processes share, as one value that children inherit."""

    sizes: ReactorSizes
    blocks: Mapping[str, WorkerBlock]
    rings: Mapping[tuple[str, str], Ring]
    handoffs: Mapping[str, tuple[socket.socket, socket.socket]]  # by selector: (acceptor's end, selector's end)
    tls_handoffs: Mapping[str, tuple[socket.socket, socket.socket]]  # by TLS worker: (selectors' end, worker's end)
    ha_handoffs: Mapping[str, tuple[socket.socket, socket.socket]]
    """By TLS worker: (replicator's end, worker's end). Not shared: a flood at the client port keeps no slave out."""

    @classmethod
    def create(cls, sizes: ReactorSizes) -> Topology:
        blocks = {name: WorkerBlock(name, index) for index, name in enumerate(sizes.workers)}
        rings = {
            (producer, consumer): Ring(capacity, blocks[producer], blocks[consumer])
            for (producer, consumer), capacity in capacities(sizes).items()
        }
        handoffs = {selector: handoff_pair() for selector in sizes.selectors}
        to_tls, from_ha = ({worker: handoff_pair() for worker in sizes.tls} for _ in range(2))
        return cls(sizes, blocks, rings, handoffs, to_tls, from_ha)

    def ring(self, producer: str, consumer: str) -> Ring:
        return self.rings[producer, consumer]

    def inputs(self, consumer: str) -> list[Ring]:
        """Rings that end at `consumer`, in the order of `wires`."""
        return [ring for (_, to), ring in self.rings.items() if to == consumer]

    def requests_to(self, server: str) -> list[Ring]:
        """Rings from all decoders to one worker: the `inputs` of the send and pull loops."""
        return [self.ring(decoder, server) for decoder in self.sizes.decoders]

    def is_connection_gone(self, connection: int) -> bool:
        """Return True if the selector process that owned the connection has ended. It sends no CLOSED when it dies."""
        selectors = self.sizes.selectors
        index = connection >> 56
        if index >= len(selectors):
            return True
        epoch = self.blocks[selectors[index]].epoch
        return bool((connection >> lib.RP_GENERATION_BITS ^ epoch) & lib.RP_EPOCH_MASK)

    def replies_from(self, worker: str) -> list[Ring]:
        """Reply rings of one worker, by selector index."""
        return [self.ring(worker, selector) for selector in self.sizes.selectors]


@attrs.define(eq=False)
class SelectorDeaths:
    """Detects that a selector was restarted, and drops the connections of its previous process a few at a time: a
    killed selector sends no CLOSED (docs/adr/0044).

    Args:
        is_gone: returns whether the selector process that owned a connection has ended.
    """

    selectors: Sequence[WorkerBlock] = ()
    is_gone: Callable[[int], bool] = lambda connection: False
    _epochs: list[int] = attrs.field(init=False, factory=list)
    _steps: Iterator[None] = attrs.field(init=False, factory=lambda: iter(()))

    def __attrs_post_init__(self) -> None:
        self._epochs = [selector.epoch for selector in self.selectors]

    def turn(self, forget: Callable[[], Iterator[None]]) -> bool:
        """Begin `forget()` if a selector was restarted, and continue what has begun. Returns False if nothing was to
        do."""
        epochs = [selector.epoch for selector in self.selectors]
        if epochs != self._epochs:
            self._epochs = epochs
            self._steps = itertools.chain(self._steps, forget())
        return sum(1 for _ in itertools.islice(self._steps, STEPS_PER_TURN)) > 0
