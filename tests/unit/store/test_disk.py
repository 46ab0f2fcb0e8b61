"""How full a disk is, as the reference counts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.store.files import DiskFiles, DiskUsage, disk_ratio

FILES = DiskFiles()


@pytest.mark.parametrize(("free", "usable", "ratio"), [(500, 500, 0.5), (500, 495, 0.51), (0, 0, 1.0), (1000, 1000, 0)])
def test_disk_ratio_is_rounded_up(free: int, usable: int, ratio: float) -> None:
    class Disk(DiskFiles):
        def usage(self, path: Path) -> DiskUsage:
            return DiskUsage(1000, free, usable)

    assert disk_ratio(Disk(), Path("/")) == ratio


def test_disk_ratio_of_a_missing_path(tmp_path: Path) -> None:
    assert disk_ratio(FILES, tmp_path / "none") == -1
