"""Tracing of Python's instructions; used by tests that let something happen between any two, or count them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def traced(trace: Callable[[FrameType, str, object], Any]) -> Iterator[None]:
    """Call `trace` as sys.settrace does; where it sets `f_trace_opcodes` of a frame, for each of its instructions.

    Python 3.12 calls it for none of them if no frame has had `f_trace_opcodes` when sys.settrace was called.
    """
    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
