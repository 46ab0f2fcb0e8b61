"""How much a random test tries: a little in `make test`, all of it in `make test-long`, which sets ROCKETPY_LONG=1.

The two differ in their counts only, so whatever the small one finds is found by the same code as what the large one
finds.
"""

from __future__ import annotations

import os

IS_LONG = os.environ.get("ROCKETPY_LONG") == "1"


def budget(short: int, long: int) -> int:
    """The number of examples, seeds or crash points of this run."""
    return long if IS_LONG else short
