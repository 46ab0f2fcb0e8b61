"""Dispatch of a synchronous group with automatic failover: consumers see what all members have that have to have it,
over every kind of start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import lib
from rocketpy.store.dispatch import Dispatch
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.reopened_store import another_boot
from tests.support.store_writer import Put, StoreWriter, small_config


@pytest.fixture
def config(tmp_path: Path) -> MessageStoreConfig:
    return small_config(tmp_path / "store")


def open_bounded(config: MessageStoreConfig, cut_at: int | None = None) -> OpenedStore:
    return open_store(config, cut_at=cut_at, stops_at_confirmed=True)


def put(opened: OpenedStore, count: int) -> list[Put]:
    with StoreWriter(opened.config, opened.control) as writer:
        return [writer.put("T", 0, b"x", b"KEYS\x01k", dispatch=False) for _ in range(count)]


def end_of(put: Put) -> int:
    return put.phy_offset + put.size


def dispatch(opened: OpenedStore) -> int:
    """Dispatch what may be; the number of units that consumers see then."""
    dispatch = Dispatch(opened.config, opened.control)
    dispatch.run_to_end()
    assert not lib.rp_dispatch_is_behind(dispatch.handle), "the store worker may sleep"
    dispatch.close()
    return visible(opened)


def visible(opened: OpenedStore) -> int:
    store = MessageStore(opened.config, opened.control)
    units = store.max_offset("T", 0)
    store.close()
    return units


def test_consumers_see_what_is_confirmed(config: MessageStoreConfig) -> None:
    opened = open_bounded(config)
    puts = put(opened, 10)
    assert dispatch(opened) == 0
    opened.control.header.confirmed_phy_offset = end_of(puts[6])
    assert dispatch(opened) == 7
    assert opened.control.dispatched_phy_offset == end_of(puts[6])
    close_store(opened, clean=False)


@pytest.mark.parametrize("beyond", [1, 10, 40])
def test_a_position_inside_a_record_waits_for_the_rest(config: MessageStoreConfig, beyond: int) -> None:
    """What is confirmed is what other members have said that they have.
    Fault: A position confirmed inside a record made dispatch take the record for damage."""
    opened = open_bounded(config)
    puts = put(opened, 10)
    opened.control.header.confirmed_phy_offset = end_of(puts[6]) + beyond
    assert dispatch(opened) == 7
    assert opened.control.dispatched_phy_offset == end_of(puts[6])
    opened.control.header.confirmed_phy_offset = opened.control.published_phy_offset
    assert dispatch(opened) == 10
    store = MessageStore(opened.config, opened.control)
    assert store.get_message("T", 0, 7, 32).records == [one.image for one in puts[7:]]
    store.close()
    close_store(opened, clean=False)


def test_one_store_worker_goes_on_when_the_rest_of_a_record_is_confirmed(config: MessageStoreConfig) -> None:
    opened = open_bounded(config)
    puts = put(opened, 3)
    worker = Dispatch(opened.config, opened.control)
    for end, units in ((end_of(puts[0]) + 9, 1), (end_of(puts[1]) - 1, 1), (end_of(puts[1]), 2), (end_of(puts[2]), 3)):
        opened.control.header.confirmed_phy_offset = end
        worker.run_to_end()
        assert visible(opened) == units and not lib.rp_dispatch_is_behind(worker.handle)
    worker.close()
    close_store(opened, clean=False)


def test_a_message_is_not_found_by_its_id_before_it_is_confirmed(config: MessageStoreConfig) -> None:
    opened = open_bounded(config)
    puts = put(opened, 2)
    opened.control.header.confirmed_phy_offset = end_of(puts[0])
    store = MessageStore(opened.config, opened.control)
    assert store.look_message_by_offset(puts[0].phy_offset) == puts[0].image
    assert store.look_message_by_offset(puts[1].phy_offset) is None
    opened.control.header.confirmed_phy_offset = end_of(puts[1])
    assert store.look_message_by_offset(puts[1].phy_offset) == puts[1].image
    store.close()
    close_store(opened, clean=False)


def test_without_failover_everything_published_is_dispatched(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    put(opened, 10)
    assert dispatch(opened) == 10
    close_store(opened, clean=False)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("loses_power", [True, False])
def test_a_start_dispatches_no_further(config: MessageStoreConfig, clean: bool, loses_power: bool) -> None:
    opened = open_bounded(config)
    puts = put(opened, 10)
    opened.control.header.confirmed_phy_offset = end_of(puts[6])
    assert dispatch(opened) == 7
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
    close_store(opened, clean=clean)
    if loses_power:
        another_boot(opened.paths)
    opened = open_bounded(config)
    header = opened.control.header
    assert opened.control.published_phy_offset == end_of(puts[-1]), "all of it is kept"
    assert header.confirmed_phy_offset == header.dispatched_phy_offset == end_of(puts[6])
    assert visible(opened) == 7
    queue = opened.control.queue("T", 0)
    assert queue is not None and queue.next_offset == 10, "the next message does not take a place twice"
    header.confirmed_phy_offset = opened.control.published_phy_offset
    assert dispatch(opened) == 10
    close_store(opened, clean=True)


@pytest.mark.parametrize("clean", [True, False])
def test_without_a_control_block_what_had_units_was_confirmed(config: MessageStoreConfig, clean: bool) -> None:
    opened = open_bounded(config)
    puts = put(opened, 10)
    opened.control.header.confirmed_phy_offset = end_of(puts[6])
    assert dispatch(opened) == 7
    close_store(opened, clean=clean)
    opened.paths.control.unlink()
    opened = open_bounded(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert visible(opened) <= 7 and (not clean or visible(opened) == 7)
    assert opened.control.header.confirmed_phy_offset == opened.control.dispatched_phy_offset
    opened.control.header.confirmed_phy_offset = opened.control.published_phy_offset
    assert dispatch(opened) == 10
    close_store(opened, clean=True)


def test_a_lost_queue_hides_nothing_that_was_confirmed(config: MessageStoreConfig) -> None:
    """Its units are made again, like those of the other queues, as far as any queue had them."""
    opened = open_bounded(config)
    with StoreWriter(opened.config, opened.control) as writer:
        puts = [writer.put(topic, 0, b"x", dispatch=False) for topic in ("U", "T") * 5]
    opened.control.header.confirmed_phy_offset = end_of(puts[7])
    assert dispatch(opened) == 4
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    shutil.rmtree(opened.paths.consumequeue / "U")
    opened = open_bounded(config)
    assert opened.report.kind is RecoveryKind.FILES and opened.report.queues_rebuilt
    assert opened.control.header.confirmed_phy_offset == end_of(puts[7]) and visible(opened) == 4
    close_store(opened, clean=True)


def test_queues_that_a_rebuild_has_replaced_hide_nothing_that_was_confirmed(config: MessageStoreConfig) -> None:
    opened = open_bounded(config)
    puts = put(opened, 10)
    opened.control.header.confirmed_phy_offset = end_of(puts[6])
    assert dispatch(opened) == 7
    opened.control.header.queues_replaced = 1
    close_store(opened, clean=False)
    shutil.rmtree(opened.paths.consumequeue / "T")
    opened = open_bounded(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert opened.control.header.confirmed_phy_offset == end_of(puts[6]) and visible(opened) == 7
    close_store(opened, clean=True)


def test_after_another_program_only_what_had_units_was_confirmed(config: MessageStoreConfig) -> None:
    """The log may be another one since the block was written."""
    opened = open_bounded(config)
    puts = put(opened, 10)
    opened.control.header.confirmed_phy_offset = end_of(puts[6])
    assert dispatch(opened) == 7
    opened.control.header.confirmed_phy_offset = end_of(puts[8])
    close_store(opened, clean=False)
    opened.paths.lock.write_bytes(b"lock")
    opened = open_bounded(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert opened.control.header.confirmed_phy_offset == opened.control.dispatched_phy_offset <= end_of(puts[6])
    close_store(opened, clean=True)


@pytest.mark.parametrize("loses_power", [True, False])
def test_what_was_shown_before_failover_came_counts_as_confirmed(config: MessageStoreConfig, loses_power: bool) -> None:
    opened = open_store(config)
    puts = put(opened, 10)
    assert dispatch(opened) == 10
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
    close_store(opened, clean=not loses_power)
    if loses_power:
        another_boot(opened.paths)
    opened = open_bounded(config)
    assert opened.control.header.confirmed_phy_offset == end_of(puts[-1]) and visible(opened) == 10
    close_store(opened, clean=True)


def test_a_group_without_failover_shows_all_again(config: MessageStoreConfig) -> None:
    opened = open_bounded(config)
    put(opened, 10)
    close_store(opened, clean=False)
    opened = open_store(config)
    assert dispatch(opened) == 10
    close_store(opened, clean=True)


def test_a_log_that_is_cut_is_confirmed_to_its_end_at_the_most(config: MessageStoreConfig) -> None:
    opened = open_bounded(config)
    puts = put(opened, 10)
    opened.control.header.confirmed_phy_offset = end_of(puts[6])
    dispatch(opened)
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
    close_store(opened, clean=False)
    opened = open_bounded(config, cut_at=end_of(puts[3]))  # as an asynchronous group may do
    header = opened.control.header
    assert header.confirmed_phy_offset == header.published_phy_offset == end_of(puts[3])
    assert visible(opened) == 4
    close_store(opened, clean=True)
