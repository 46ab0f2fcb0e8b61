"""What `rocketpy standalone` tells a newcomer works in another terminal."""

from __future__ import annotations

import sys

import pytest

from rocketpy.processes.boot.standalone import activation


@pytest.mark.parametrize(
    ("prefix", "path", "expected"),
    [
        ("/work/.venv", "/usr/bin:/bin", "/work/.venv/bin/activate"),
        ("/work/.venv", "/work/.venv/bin:/usr/bin", ""),
        (sys.base_prefix, "/usr/bin", ""),
    ],
    ids=["not activated", "activated", "no venv"],
)
def test_a_venv_that_is_not_on_the_path_is_named(
    monkeypatch: pytest.MonkeyPatch, prefix: str, path: str, expected: str
) -> None:
    monkeypatch.setattr(sys, "prefix", prefix)
    assert activation({"PATH": path}) == expected
