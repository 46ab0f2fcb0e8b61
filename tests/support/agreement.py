"""One input for C and Python, and the comparison of what they make of it.

Seeded by the test itself (derandomised): a failure comes back on every run.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from rocketpy.errors import RocketError
from tests.support.budget import budget

seeded = settings(derandomize=True, max_examples=budget(40, 300), deadline=None, database=None)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
OFFSETS = st.integers(0, (1 << 63) - 1)
TEXTS = st.text(st.characters(codec="utf-8"))
PLAIN = st.text(st.sampled_from("ABCdef0123456789,_-."))


def outcome(call: Callable[[], Any]) -> Any:
    """The value, or the class of the error: reasons may be worded differently."""
    try:
        return call()
    except RocketError as exc:
        return type(exc)


def agree(in_c: Callable[[], Any], in_python: Callable[[], Any]) -> Any:
    """Return the result, which must be the same of both."""
    expected = outcome(in_python)
    assert outcome(in_c) == expected
    return expected


@st.composite
def damaged(draw: st.DrawFn, originals: st.SearchStrategy[bytes]) -> bytes:
    """An original with a few bytes changed, taken out, put in, or its end cut off."""
    image = bytearray(draw(originals))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(image)))
        what = draw(st.sampled_from(["change", "remove", "insert", "cut"]))
        if what == "change" and at < len(image):
            image[at] = draw(st.sampled_from(b'\x00\x01\x7f\x80\xff {}[]":,\\u0n-') | st.integers(0, 255))
        elif what == "remove":
            del image[at : at + draw(st.integers(1, 4))]
        elif what == "insert":
            image[at:at] = draw(st.binary(max_size=4) | st.sampled_from([b'"', b"\\", b"null", b"\\ud834", b" ", b","]))
        elif what == "cut":
            del image[at:]
    return bytes(image)
