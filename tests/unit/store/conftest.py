"""A store in a temporary directory, opened as the supervisor opens it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import StoreWriter, small_config


@pytest.fixture
def config(tmp_path: Path) -> MessageStoreConfig:
    return small_config(tmp_path / "store")


@pytest.fixture
def opened(config: MessageStoreConfig) -> Iterator[OpenedStore]:
    store = open_store(config)
    yield store
    close_store(store, clean=False)


@pytest.fixture
def writer(config: MessageStoreConfig, opened: OpenedStore) -> Iterator[StoreWriter]:
    with StoreWriter(config, opened.control) as writer:
        yield writer


@pytest.fixture
def store(config: MessageStoreConfig, opened: OpenedStore) -> Iterator[MessageStore]:
    store = MessageStore(config, opened.control)
    yield store
    store.close()


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of the test: hours of deletion are local ones."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
