"""A send worker and a timer thread in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.timer_rig import TimerRig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TimerRig]:
    pytest.importorskip("rocketpy.native._rocketpy", reason="timers are C")
    from tests.support.timer_rig import TimerRig

    rig = TimerRig(tmp_path)
    rig.add_timer_topic()
    yield rig
    rig.close()
