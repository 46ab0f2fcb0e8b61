"""`python -m tests.support.requirements EXTRA ...`: what the extras of this package require, a line each, for pip.

Short: the list of setup.py, without the package itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import requires

from packaging.requirements import Requirement

PACKAGE = "rocketpy-mq"


def requirements_of(extras: Sequence[str]) -> Iterator[str]:
    """Yield those that hold for this interpreter and platform."""
    for line in requires(PACKAGE) or ():
        found = Requirement(line)
        if found.marker is None or found.marker.evaluate({"extra": ""}):  # not of an extra
            continue
        if any(found.marker.evaluate({"extra": extra}) for extra in extras):
            found.marker = None
            yield str(found)


if __name__ == "__main__":
    print("\n".join(requirements_of(sys.argv[1:])))
