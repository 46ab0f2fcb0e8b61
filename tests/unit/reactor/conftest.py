"""Supervisors over toy workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.toy_workers import Launcher


@pytest.fixture
def launch() -> Iterator[Launcher]:
    """Runs supervisors, each in a child of its own."""
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from tests.support.toy_workers import Launcher

    launcher = Launcher()
    yield launcher
    launcher.close()
