"""A control block that is read by a process that must not change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.store.control_block import ControlBlock, ControlView


def test_it_shows_what_the_block_has(tmp_path: Path) -> None:
    block = ControlBlock(tmp_path / "control", 1 << 20)
    view = ControlView(tmp_path / "control")
    for position in (5, 1 << 40):
        block.header.published_phy_offset = position
        assert view.header.published_phy_offset == position
    view.close()
    block.close()


def test_a_block_that_seems_unusable_is_not_formatted(tmp_path: Path) -> None:
    path = tmp_path / "control"
    ControlBlock(path, 1 << 20).close()
    image = b"x" * 4096 + path.read_bytes()[4096:]
    path.write_bytes(image)
    ControlView(path).close()
    assert path.read_bytes() == image


def test_what_is_no_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot map"):
        ControlView(tmp_path / "none")
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(StoreError, match="is no control block"):
        ControlView(tmp_path / "short")
