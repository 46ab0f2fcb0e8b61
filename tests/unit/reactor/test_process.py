"""The place in memory of a worker's title, and the processor times of a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor.process import _command_line_place, processor_times

FIELDS = [str(number) for number in range(3, 53)]  # fields 3 to 52 of /proc/self/stat


@pytest.mark.parametrize(
    ("last", "place"), [(52, (48, 49)), (44, (0, 0)), (48, (0, 0))], ids=["Linux", "qemu", "one end"]
)
def test_the_place_of_the_command_line(last: int, place: tuple[int, int], tmp_path: Path) -> None:
    """Fault: The broker did not start under qemu, whose /proc/self/stat ends with field 44."""
    status = tmp_path / "stat"
    status.write_text("1 (a) b) " + " ".join(FIELDS[: last - 2]))
    assert _command_line_place(status) == place


def test_a_process_that_is_gone_has_run_for_no_time() -> None:
    """The supervisor asks for the times of a worker that may end at any moment."""
    assert processor_times(os.getpid()) > (0, 0)
    assert processor_times(0) == (0, 0)
