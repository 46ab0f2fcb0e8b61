"""deploy/with_progress.sh: a long installation shows what it does, and its log if it fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "deploy/with_progress.sh"


def run(log: Path, command: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", str(SCRIPT), str(log), "env", "WHAT=pyspark", "sh", "-c", command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_steps_are_shown_while_it_runs(tmp_path: Path) -> None:
    """Fault: The target spark-demo was silent while it installed 500 MB."""
    log = tmp_path / "pip.log"
    ran = run(log, 'echo "noise"; echo "  Downloading $WHAT (500 MB)"; sleep 1.5; echo done')
    assert ran.returncode == 0 and "Downloading pyspark (500 MB)" in ran.stdout and "noise" not in ran.stdout
    assert log.read_text().endswith("done\n")


def test_a_failure_shows_the_log(tmp_path: Path) -> None:
    ran = run(tmp_path / "pip.log", "echo 'ERROR: no space left'; exit 3")
    assert ran.returncode == 1 and "ERROR: no space left" in ran.stdout
