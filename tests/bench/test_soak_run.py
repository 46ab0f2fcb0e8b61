"""`rocketpy bench soak` runs, for as short a time as shows a slope; its result has what it watched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support import preloaded


def test_a_short_soak_and_its_result(tmp_path: Path) -> None:
    """Such a short run has no verdict about memory: status 1 may only be that. It has nine samples, of which five are
    needed after the first fifth: with six, one that came late was missing."""
    out = tmp_path / "soak.json"
    words = [*preloaded.COMMAND, "bench", "soak", "--minutes", "0.75", "--store", str(tmp_path), "-o", str(out)]
    done = preloaded.run(words, timeout=180)
    (run,) = json.loads(out.read_text())["points"][0]["runs"]
    assert run["errors"] == {} and run["figures"]["processes_replaced"] == 0
    assert run["figures"]["pss_mib_last"] > 10 and run["figures"]["descriptors_last"] > 10
    assert run["figures"]["consumed_per_s"] == pytest.approx(2 * run["figures"]["messages_per_s"], rel=0.2)
    assert "pss_mib: " in done.stdout and "of the last fifth" not in done.stderr
    assert done.returncode == 0 or "grows by" in done.stderr, done.stderr
