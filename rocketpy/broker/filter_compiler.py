"""Programs of SQL92 expressions, compiled once for each text.

Parsing takes about a millisecond, of a long text much more, so it is done in a thread. The programs of the last few
texts are kept, and the reasons why others were refused.
"""

from __future__ import annotations

from collections import OrderedDict

import trio

from rocketpy.errors import FilterInvalid
from rocketpy.filter.parser import LENGTH_MAX, parse
from rocketpy.filter.program import compile_program

TEXTS_MAX = 1000
BYTES_MAX = 8 * 1024 * 1024  # of texts and programs
SIZE_OF_ENTRY = 400


class FilterCompiler:
    """Compiles SQL92 expressions in a thread, and keeps the programs of the latest ones. One per broker."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, bytes | str] = OrderedDict()  # a program, or the reason of a refusal
        self._bytes = 0
        self._limiters = {False: trio.CapacityLimiter(1), True: trio.CapacityLimiter(1)}  # by is_urgent

    def is_known(self, text: str) -> bool:
        """Whether `program` answers at once."""
        return text in self._known or len(text) > LENGTH_MAX

    async def prepare(self, text: str, *, is_urgent: bool = False) -> None:
        """Compile the text if it is not known; in a thread. `is_urgent`: not behind those that are not."""
        if not self.is_known(text):
            self._keep(text, await trio.to_thread.run_sync(_compile, text, limiter=self._limiters[is_urgent]))

    def program(self, text: str) -> bytes:
        """The program of a text; compiled here and now if it is not known.

        Raises: FilterInvalid.
        """
        found = self._known.get(text)
        if found is None:
            found = _compile(text)
            self._keep(text, found)
        else:
            self._known.move_to_end(text)
        if isinstance(found, str):
            raise FilterInvalid(found)
        return found

    def _keep(self, text: str, found: bytes | str) -> None:
        if len(text) > LENGTH_MAX or text in self._known:
            return
        self._known[text] = found
        self._bytes += _size(text, found)
        while len(self._known) > TEXTS_MAX or self._bytes > BYTES_MAX:
            self._bytes -= _size(*self._known.popitem(last=False))


def _size(text: str, found: bytes | str) -> int:
    return SIZE_OF_ENTRY + 4 * len(text) + len(found)


def _compile(text: str) -> bytes | str:
    try:
        return compile_program(parse(text))
    except FilterInvalid as exc:
        return str(exc)
