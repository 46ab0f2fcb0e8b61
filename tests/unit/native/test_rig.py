"""tests/support/fast_path.py: a rig that is closed leaves nothing behind, so that a crash generator makes thousands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.fast_path import FastPath


def shared_mappings(root: Path) -> list[str]:
    """Rings, blocks of workers, and files of the store, as the kernel lists them."""
    names = ("/memfd:", "/dev/zero", str(root))
    lines = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    return [fields[5] for fields in lines if len(fields) > 5 and fields[5].startswith(names)]


def test_a_closed_rig_leaves_neither_mappings_nor_descriptors(tmp_path: Path) -> None:
    FastPath(tmp_path / "0").close()
    mappings, descriptors = shared_mappings(tmp_path), len(os.listdir("/proc/self/fd"))
    rig = FastPath(tmp_path / "1")
    assert len(shared_mappings(tmp_path)) > len(mappings)
    rig.close()
    assert shared_mappings(tmp_path) == mappings
    assert len(os.listdir("/proc/self/fd")) == descriptors
