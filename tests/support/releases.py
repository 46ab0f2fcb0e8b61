"""The last release, built from the history of the project: what the members of a group run before they are upgraded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rocketpy.codes import REPLICATION_VERSION

ROOT = Path(__file__).parents[2]
BUILDS = ROOT / "build" / "releases"
CODES = "rocketpy/codes.py"
BUILD_TIMEOUT_S = 600.0


class NoHistory(Exception):
    """The checkout lacks the commits of the last release."""


def commit_of_last_release() -> str:
    """The commit before the one that raised the version of replication to the present one.

    Raises:
        NoHistory: the history does not reach back to it.
    """
    raised = _git("log", "--format=%H", f"-G^REPLICATION_VERSION = {REPLICATION_VERSION}$", "--", CODES).split()
    if not raised:
        raise NoHistory(f"no commit of this checkout has set REPLICATION_VERSION to {REPLICATION_VERSION}")
    return _git("rev-parse", f"{raised[-1]}^").strip()


def version_at(commit: str) -> int:
    """The highest version of replication that a commit speaks."""
    found = re.search(r"^REPLICATION_VERSION = (\d+)$", _git("show", f"{commit}:{CODES}"), re.MULTILINE)
    assert found is not None, f"{CODES} of {commit} names no version"
    return int(found[1])


def built(commit: str) -> Path:
    """The directory of a commit with its compiled core; made once for each commit."""
    place = BUILDS / commit[:12]
    done = place / ".built"
    if not done.exists():
        place.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=place, input=archive.stdout, check=True)
        words = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(words, cwd=place, capture_output=True, timeout=BUILD_TIMEOUT_S, check=True)
        done.touch()
    return place


def run_from(place: Path) -> list[str]:
    """What stands before `python -m rocketpy` so that it is the build in `place` that runs."""
    return ["env", "-C", str(place), f"PYTHONPATH={place}"]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoHistory(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout
