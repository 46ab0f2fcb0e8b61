"""Topology: every pair that talks has one ring, the sum is bounded, and memory that nobody used costs nothing."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import ConfigError
from rocketpy.native.core import lib
from rocketpy.reactor.ring import RingReader, RingWriter
from rocketpy.reactor.topology import (
    MANAGER,
    MIB,
    PULL,
    REPLICATOR,
    SEND,
    STORE,
    ReactorSizes,
    Topology,
    capacities,
    wires,
    with_spares,
)

SHAPES = [ReactorSizes(selector_workers=s, codec_workers=c) for s in (1, 2, 4) for c in (0, 1, 3)]
SHAPES.append(ReactorSizes(selector_workers=2, pull_workers=3, query_workers=3))
SHAPES.append(ReactorSizes(is_slave=True))


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_one_ring_per_pair_and_every_worker_that_asks_is_answered(sizes: ReactorSizes) -> None:
    """Holds: network, processes of the reactor."""
    pairs = [(wire.producer, wire.consumer) for wire in wires(sizes)]
    assert len(pairs) == len(set(pairs))
    assert {name for pair in pairs for name in pair} <= set(sizes.workers)
    for selector in sizes.selectors:
        writers = {producer for producer, consumer in pairs if consumer == selector}
        assert set(sizes.servers) <= writers
        assert writers & set(sizes.decoders)  # refusals while decoding
    for decoder in sizes.decoders:
        assert {consumer for producer, consumer in pairs if producer == decoder} >= set(sizes.servers)
    assert {(SEND, MANAGER), (MANAGER, SEND)} <= set(pairs)
    for pull in sizes.pulls:
        assert {(pull, MANAGER), (MANAGER, pull), (STORE, pull)} <= set(pairs)


def test_the_replicator_of_a_slave_brings_the_log() -> None:
    sizes = ReactorSizes(is_slave=True)
    assert (REPLICATOR, SEND) in {(wire.producer, wire.consumer) for wire in wires(sizes)}
    assert (REPLICATOR, SEND) not in {(wire.producer, wire.consumer) for wire in wires(ReactorSizes())}


@pytest.mark.parametrize("ring_bytes", [64 * 1024, 512 * 1024, 8 * MIB])
@pytest.mark.parametrize("selectors", [1, 8])
def test_the_largest_part_of_a_masters_log_fits_the_replicators_ring(ring_bytes: int, selectors: int) -> None:
    """A DATA is one message of it (csrc/replication/slave_stream.c); with a smaller ring the stream would end, for
    ever again.
    Fault: With a small ring, a slave that lacked 128 KiB never caught up."""
    plan = capacities(ReactorSizes(selector_workers=selectors, ring_bytes=ring_bytes, is_slave=True))
    assert plan[REPLICATOR, SEND] // 4 - 64 >= lib.RP_HA_DATA_MAX
    assert not plan[REPLICATOR, SEND] & (plan[REPLICATOR, SEND] - 1)


def test_workers_are_numbered_where_there_are_several() -> None:
    assert ReactorSizes().servers == ("send", "pull", "manager")
    several = ReactorSizes(pull_workers=2, query_workers=1)
    assert several.servers == ("send", "pull-0", "pull-1", "manager", "query-0")


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_all_rings_stay_under_the_bound(sizes: ReactorSizes) -> None:
    plan = capacities(sizes)
    assert sum(plan.values()) <= 64 * MIB
    assert all(capacity >= 65536 and capacity & (capacity - 1) == 0 for capacity in plan.values())


def test_rings_shrink_until_they_fit() -> None:
    large = capacities(ReactorSizes(selector_workers=8, codec_workers=8, ring_bytes=8 * MIB))
    assert sum(large.values()) <= 64 * MIB
    assert max(large.values()) < 8 * MIB


def test_too_many_rings_are_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"sharedMemoryMax: \d+ rings take \d+ bytes"):
        capacities(ReactorSizes(selector_workers=16, codec_workers=16, shared_bytes_max=4 * MIB))


@pytest.mark.parametrize(
    ("sizes", "spares"),
    [
        (ReactorSizes(), 4),
        (ReactorSizes(codec_workers=1), 4),
        (ReactorSizes(shared_bytes_max=20 * MIB), 2),
        (ReactorSizes(selector_workers=8, codec_workers=8), 1),  # the rings have shrunk already
    ],
    ids=str,
)
def test_no_ring_shrinks_for_a_spare_selector(sizes: ReactorSizes, spares: int) -> None:
    wider = with_spares(sizes, 4)
    assert wider.selectors == (*sizes.selectors, *wider.spares) and len(wider.spares) == spares
    plan = capacities(wider)
    assert plan.items() >= capacities(sizes).items()
    assert sum(plan.values()) <= sizes.shared_bytes_max
    assert with_spares(sizes, 0) == sizes


@pytest.mark.parametrize("ring_bytes", [0, 1000, 3 * MIB])
def test_a_ring_size_that_is_no_power_of_two_is_refused(ring_bytes: int) -> None:
    with pytest.raises(ConfigError, match="ringSize"):
        capacities(ReactorSizes(ring_bytes=ring_bytes))


def shared_kib() -> int:
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss_Shmem:"):
                return int(line.split()[1])
    raise AssertionError("no Pss_Shmem in smaps_rollup")


def test_rings_that_nobody_used_take_no_memory() -> None:
    before = shared_kib()
    topology = Topology.create(ReactorSizes(selector_workers=2, codec_workers=2))
    assert sum(ring.capacity_bytes for ring in topology.rings.values()) > 10 * MIB
    assert shared_kib() - before < 8 * (len(topology.rings) + len(topology.blocks))
    for ring in topology.rings.values():  # and each is joined to the right worker
        writer, reader = RingWriter(ring), RingReader(ring)
        assert writer.write(3, ring.producer.encode())
        assert reader.read() == (3, ring.producer.encode())
    for block in topology.blocks.values():
        os.close(block.doorbell)
    for pair in topology.handoffs.values():
        pair[0].close()
        pair[1].close()


def test_lists_of_rings_are_in_the_order_of_the_workers() -> None:
    topology = Topology.create(ReactorSizes(selector_workers=2, codec_workers=2, ring_bytes=65536))
    assert [ring.producer for ring in topology.requests_to(SEND)] == ["codec-0", "codec-1"]
    assert [ring.consumer for ring in topology.replies_from(PULL)] == ["selector-0", "selector-1"]
    assert {ring.producer for ring in topology.inputs(MANAGER)} == {"codec-0", "codec-1", SEND, PULL, "store"}
    for block in topology.blocks.values():
        os.close(block.doorbell)
    for pair in topology.handoffs.values():
        pair[0].close()
        pair[1].close()
