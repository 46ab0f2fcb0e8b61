"""A slave asks for a cut of its log, which is taken once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.store.recovery.diverged import REQUEST_FILE, request_cut, take_cut_request


@pytest.mark.parametrize("position", [0, 5_000_000_000])
def test_a_request_is_taken_once(tmp_path: Path, position: int) -> None:
    assert take_cut_request(tmp_path) is None
    request_cut(tmp_path, 7)
    request_cut(tmp_path, position)
    assert take_cut_request(tmp_path) == position
    assert take_cut_request(tmp_path) is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data", [b"", b"x", b"[]", b"{}", b'{"position":-1}', b'{"position":true}', b'{"position":1.5}']
)
def test_a_damaged_request_cuts_nothing(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / REQUEST_FILE).write_bytes(data)
    assert take_cut_request(tmp_path) is None and "nothing is cut" in caplog.text
    assert not (tmp_path / REQUEST_FILE).exists()


def test_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / REQUEST_FILE).mkdir()
    with pytest.raises(StoreError, match=REQUEST_FILE):
        take_cut_request(tmp_path)
    with pytest.raises(StoreError, match=REQUEST_FILE):
        request_cut(tmp_path, 5)
