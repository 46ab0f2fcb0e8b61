"""The queries that need the store and the settings alone. Query workers serve them, or the manager where there are
none; either way the answers are those of the control block and the files, which are shared.

Other reading requests need tables that the manager owns (topics, groups, offsets), and are served there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketpy.config import properties, update_broker
from rocketpy.remoting.abc import Processor

from .current_settings import CurrentSettings
from .processors.query import QueryMessageProcessor
from .processors.store_offsets import StoreOffsetProcessor
from .processors.table import TableProcessor
from .store_api import Store


def query_processors(store: Store, settings: CurrentSettings) -> Sequence[TableProcessor]:
    """The processors of the pool `query` (reactor/pools.py)."""
    return QueryMessageProcessor(store, settings), StoreOffsetProcessor(store)


def queries_by_code(store: Store, settings: CurrentSettings) -> Mapping[int, Processor]:
    return {code: processor for processor in query_processors(store, settings) for code in processor.codes}


def change_settings(settings: CurrentSettings, record: bytes) -> None:
    """Apply changes that the manager has checked: `key=value` lines, with all changes since the start."""
    settings.value = update_broker(settings.value, properties.read_changes(record)).settings
