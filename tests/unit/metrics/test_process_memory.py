"""Memory from /proc, real and made up."""

import os
from pathlib import Path

from rocketpy.metrics import ProcessMemory, process_memory


def test_our_own() -> None:
    memory = process_memory(os.getpid())
    assert memory is not None
    assert 0 < memory.pss_bytes <= memory.rss_bytes


def test_fields(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/smaps_rollup").write_text(
        "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:      200 kB\nPss:      100 kB\nPss_Dirty:  1 kB\n"
    )
    assert process_memory(7, tmp_path) == ProcessMemory(204_800, 102_400)


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    assert process_memory(7, tmp_path) is None
    (tmp_path / "8").mkdir()
    (tmp_path / "8/smaps_rollup").write_text("")
    assert process_memory(8, tmp_path) is None
