"""Memory from /proc, real and made up."""

import os
from pathlib import Path

from rocketpy.metrics.process_memory import PAGE_SIZE, PSS_AGE_S, MemoryOfProcesses, ProcessMemory, process_memory


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


def test_shares_are_read_once_a_minute(tmp_path: Path) -> None:
    times = [0.0]
    memory = MemoryOfProcesses(tmp_path, lambda: times[-1])

    def write(rss_pages: int, pss_pages: int) -> None:
        (tmp_path / "7").mkdir(exist_ok=True)
        (tmp_path / "7/statm").write_text(f"99 {rss_pages} 7 3 0 5 0\n")
        sizes = [pages * PAGE_SIZE // 1024 for pages in (rss_pages, pss_pages)]
        (tmp_path / "7/smaps_rollup").write_text("[rollup]\nRss: {} kB\nPss: {} kB\n".format(*sizes))

    assert memory.of(7) is None
    write(20, 10)
    assert memory.of(7) == ProcessMemory(20 * PAGE_SIZE, 10 * PAGE_SIZE)
    write(21, 11)
    times.append(PSS_AGE_S - 1)
    assert memory.of(7) == ProcessMemory(21 * PAGE_SIZE, 10 * PAGE_SIZE)
    times.append(PSS_AGE_S)
    assert memory.of(7) == ProcessMemory(21 * PAGE_SIZE, 11 * PAGE_SIZE)
    (tmp_path / "7/statm").unlink()
    assert memory.of(7) is None
    own = MemoryOfProcesses()
    assert own.of(os.getpid()) is not None
    again = own.of(os.getpid())
    assert again is not None and again.rss_bytes > 0
