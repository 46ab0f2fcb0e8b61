"""A plain slave whose log has to be cut starts again, and takes the request once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.config import BrokerRole, BrokerSettings
from rocketpy.processes.boot.store_opening import requested_cut
from rocketpy.store.recovery.diverged import request_cut

PROGRAM = """
import os, sys
from pathlib import Path
from rocketpy.processes.boot.store_opening import start_again
place = Path(sys.argv[1])
print(os.getpid(), sys.argv[2:], sys.flags.utf8_mode)
if not place.exists():
    place.touch()
    start_again()
"""


def test_it_is_the_same_process_with_the_same_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-X", "utf8", str(program), str(tmp_path / "place"), "a b", "--set", "c=d"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first == second and "['a b', '--set', 'c=d'] 1" in first


def settings(root: Path, role: BrokerRole, truncates: bool) -> BrokerSettings:
    config = BrokerSettings()
    store = attrs.evolve(config.store, broker_role=role, store_path_root_dir=str(root), ha_truncate_diverged=truncates)
    return attrs.evolve(config, store=store)


@pytest.mark.parametrize(
    ("role", "truncates", "found"),
    [(BrokerRole.SLAVE, True, 7), (BrokerRole.SLAVE, False, None), (BrokerRole.ASYNC_MASTER, True, None)],
)
def test_only_a_slave_that_may_be_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, role: BrokerRole, truncates: bool, found: int | None
) -> None:
    given = settings(tmp_path, role, truncates)
    assert requested_cut(given) is None and not caplog.text
    request_cut(tmp_path, 7)
    assert requested_cut(given) == found and ("it stays" in caplog.text) == (found is None)
    request_cut(tmp_path, 7)
    assert requested_cut(given) == found, "each request is taken once"
    assert requested_cut(given) is None
