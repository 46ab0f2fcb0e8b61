"""The queries that need the store alone are those of the pool `query`, and follow settings that change."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.broker.current_settings import CurrentSettings
from rocketpy.broker.queries import change_settings, queries_by_code
from rocketpy.config import BrokerSettings
from rocketpy.reactor.pools import broker_pools
from tests.support.slow_path import SlowPathRig


def test_they_are_the_codes_of_the_pool(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    pool = broker_pools(BrokerSettings()).pool("query")
    assert queries_by_code(rig.store, rig.services.settings).keys() == set(pool.codes)


def test_they_follow_what_the_manager_tells(tmp_path: Path) -> None:
    settings = CurrentSettings(SlowPathRig(tmp_path).settings)
    change_settings(settings, b"defaultQueryMaxNum=7\n")
    assert settings.store.default_query_max_num == 7
    change_settings(settings, b"defaultQueryMaxNum=8\nfileReservedTime=9\n")
    assert settings.store.default_query_max_num == 8
