"""The fast path in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.fast_path import FastPath


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FastPath]:
    pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")
    from tests.support.fast_path import FastPath
    from tests.support.fast_path_requests import ready

    rig = ready(FastPath(tmp_path))
    yield rig
    rig.close()
