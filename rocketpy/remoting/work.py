"""Long work as generators: each yield is a chance for others to run, the return value is the result.

An event loop runs them with `transport.steps.finished`, code that may block with `result_of`.

Short: it is for tables and files as well as for bodies of requests.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")


def result_of(work: Generator[None, None, _T]) -> _T:
    """Do all of it at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _T = end.value
            return result
