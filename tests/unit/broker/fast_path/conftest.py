"""The manager's end of the rings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.fast_path_desk import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from tests.support.fast_path_desk import Desk

    desk = Desk.open()
    yield desk
    for block in desk.blocks.values():
        os.close(block.doorbell)
