"""How much a random test tries: a little in `make test`, all of it in `make test-property test-long`.

These set ROCKETPY_LONG=1. Only the counts differ, so `ROCKETPY_LONG=1 pytest FILE` repeats what they do. A file that
imports this lies below a path that one of them names in the Makefile (a test holds it).
"""

from __future__ import annotations

import os

IS_LONG = os.environ.get("ROCKETPY_LONG") == "1"


def budget(short: int, long: int) -> int:
    """The number of examples, seeds or crash points of this run."""
    return long if IS_LONG else short
