"""Masters with slaves that the test plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.master_rig import MasterRig


@pytest.fixture
def open_rig(tmp_path: Path) -> Iterator[Callable[..., MasterRig]]:
    """Opens masters, each in a directory of its own. `kind`: another class of rig."""
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from tests.support.master_rig import MasterRig

    rigs: list[MasterRig] = []

    def open_it(kind: type[MasterRig] = MasterRig, **options: Any) -> MasterRig:
        rigs.append(kind(tmp_path / str(len(rigs)), **options))
        return rigs[-1]

    yield open_it
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(open_rig: Callable[..., MasterRig]) -> MasterRig:
    return open_rig()
