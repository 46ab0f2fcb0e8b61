"""Many cases of a test as one test.

An item of pytest costs 3 ms of a processor with pytest-xdist: each worker collects it, one runs it, and its reports
pass between two processes. A test that takes microseconds and has a hundred cases takes `cases` instead of
pytest.mark.parametrize. All cases share the fixtures, which none of them may change.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SHOWN_MAX = 100  # characters of a value in a failure
NAMED_MAX = 10  # cases in a failure

Test = Callable[..., None]


def cases(names: str, values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each of the values, and fail with the first failure, to which all cases that fail are noted.

    Args:
        names: of the arguments, separated by commas; if there are several, a value has a part for each.
    """
    keys = [name.strip() for name in names.split(",")]
    found = [dict(zip(keys, value if len(keys) > 1 else (value,), strict=True)) for value in values]
    assert found, "without a case the test holds nothing"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for case in found:
                try:
                    test(**fixtures, **case)
                except pytest.skip.Exception as error:
                    raise AssertionError("a case cannot be skipped: the others would be as well") from error
                except (Exception, pytest.fail.Exception) as error:
                    failures.append((error, ", ".join(f"{key}={value!r}"[:SHOWN_MAX] for key, value in case.items())))
            if failures:
                first = failures[0][0]
                first.add_note(f"{len(failures)} of {len(found)} cases failed:")
                for _, name in failures[:NAMED_MAX]:
                    first.add_note(f"  {name}")
                raise first

        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
