"""The type of the file system below a path, as the kernel's files tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.file_systems import NO_JOURNAL, file_system_of

MOUNTS = r"""27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw,discard
30 27 8:17 / /srv rw,noatime - ext4 /dev/sdb1 rw
31 27 0:40 / /srv/rocketpy rw - tmpfs none rw
32 27 8:33 / /srv/rocketpy rw - xfs /dev/sdc1 rw
33 27 0:50 /sub /srv/two\\040words rw shared:7 master:3 - btrfs /dev/sdd rw
""".replace("\\\\", "\\")


@pytest.fixture
def kernel(tmp_path: Path) -> tuple[Path, Path]:
    """Directories in place of /proc and /sys: the root has no journal, /srv has one."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    for numbers, name, options in (("254:0", "vda", "rw\ndelalloc\n"), ("8:17", "sdb1", "rw\ndata=ordered\n")):
        (sys / "devices" / name).mkdir(parents=True)
        (sys / "dev" / "block").mkdir(parents=True, exist_ok=True)
        (sys / "dev" / "block" / numbers).symlink_to(sys / "devices" / name)
        (proc / "fs" / "ext4" / name).mkdir(parents=True)
        (proc / "fs" / "ext4" / name / "options").write_text(options)
    (proc / "self").mkdir()
    (proc / "self" / "mountinfo").write_text(MOUNTS)
    return proc, sys


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", NO_JOURNAL),
        ("/srvs", NO_JOURNAL),
        ("/srv", "ext4"),
        ("/srv/other/store", "ext4"),
        ("/srv/rocketpy/store", "xfs"),
        ("/srv/two words/store", "btrfs"),
    ],
)
def test_the_last_mount_above_a_path(kernel: tuple[Path, Path], path: str, expected: str) -> None:
    assert file_system_of(Path(path), *kernel) == expected


def test_a_kernel_that_hides_its_files(kernel: tuple[Path, Path], tmp_path: Path) -> None:
    """Fault: In a container the mode of the journal is not to be read, and each ext4 was one without a journal."""
    proc, sys = kernel
    (proc / "fs" / "ext4" / "vda" / "options").unlink()
    assert file_system_of(Path("/"), proc, sys) == "ext4"
    (proc / "self" / "mountinfo").write_text("")
    assert file_system_of(Path("/"), proc, sys) == ""
    assert file_system_of(Path("/"), tmp_path / "none", sys) == ""


def test_this_machine() -> None:
    assert file_system_of(Path("/proc/self")) == "proc"
