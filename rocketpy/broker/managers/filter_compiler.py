"""Programs of SQL92 expressions, compiled once for each text.

Parsing takes about a millisecond, of a long text much more, so it is done in a thread. Clients that wait take turns
after each text. The programs of registered filters are kept as long as these are registered; anyone may bring other
texts, so of them only the last few are kept, with the reasons why some were refused.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

import trio

from rocketpy.errors import FilterInvalid
from rocketpy.filter.parser import LENGTH_MAX, parse

TEXTS_MAX = 1000
BYTES_MAX = 8 * 1024 * 1024  # of texts and programs
SIZE_OF_ENTRY = 400
LISTS_MAX = 128  # lists of texts that are compiled at the same time: their programs may not fit what is kept

Compiled = bytes | str  # a program, or the reason of a refusal


class FilterCompiler:
    """Compiles SQL92 expressions in a thread, and keeps programs. One per broker."""

    def __init__(self) -> None:
        self._registered: Counter[str] = Counter()  # texts, by the number of their filters
        self._held: dict[str, Compiled] = {}  # of registered texts
        self._known: OrderedDict[str, Compiled] = OrderedDict()  # of others, the latest last
        self._bytes = 0
        self._limiters = {False: trio.CapacityLimiter(1), True: trio.CapacityLimiter(1)}  # by is_urgent
        self._lists = trio.CapacityLimiter(LISTS_MAX)

    def is_known(self, text: str) -> bool:
        """Return True if `program` answers at once."""
        return text in self._held or text in self._known or len(text) > LENGTH_MAX

    def hold(self, text: str) -> None:
        """Keep the program of a text while one more filter with it is registered. Their number bounds the memory."""
        self._registered[text] += 1
        found = self._known.pop(text, None)
        if found is not None:
            self._bytes -= _size(text, found)
            self._held[text] = found

    def release(self, text: str) -> None:
        """Count one registered filter of this text less. After the last one its program may be dropped."""
        self._registered[text] -= 1
        if not self._registered[text]:
            del self._registered[text]
        if text not in self._registered and (found := self._held.pop(text, None)) is not None:
            self.keep({text: found})

    async def prepare(self, text: str, *, is_urgent: bool = False) -> Compiled:
        """Compile the text in a thread, if it is not known. Urgent texts do not wait for others."""
        found = self._held.get(text) or self._known.get(text)
        if found is None and len(text) > LENGTH_MAX:
            found = _compile(text)  # refused unread
        elif found is None:
            found = await trio.to_thread.run_sync(_compile, text, limiter=self._limiters[is_urgent])
            self.keep({text: found})
        return found

    async def prepare_all(self, texts: Iterable[str]) -> dict[str, Compiled]:
        """Compile a client's texts, for `keep` when they are used: others may have taken their places meanwhile."""
        async with self._lists:
            return {text: await self.prepare(text, is_urgent=True) for text in texts}

    def program(self, text: str) -> bytes:
        """The program of a text; compiled here and now if it is not known.

        Raises: FilterInvalid.
        """
        found = self._held.get(text) or self._known.get(text)
        if found is None:
            found = _compile(text)
            self.keep({text: found})
        elif text in self._known:
            self._known.move_to_end(text)
        if isinstance(found, str):
            raise FilterInvalid(found)
        return found

    def keep(self, compiled: Mapping[str, Compiled]) -> None:
        """Keep these programs as the latest ones, or as those of registered filters."""
        for text, found in compiled.items():
            if len(text) > LENGTH_MAX:
                continue
            if text in self._registered:
                self._held[text] = found
                continue
            if text not in self._known:
                self._bytes += _size(text, found)
            self._known[text] = found
            self._known.move_to_end(text)
        while len(self._known) > TEXTS_MAX or self._bytes > BYTES_MAX:
            self._bytes -= _size(*self._known.popitem(last=False))


def _size(text: str, found: Compiled) -> int:
    return SIZE_OF_ENTRY + 4 * len(text) + len(found)


def _compile(text: str) -> Compiled:
    from rocketpy.filter.program import compile_program  # late, as the grammar (filter/parser.py)

    try:
        return compile_program(parse(text))
    except FilterInvalid as exc:
        return str(exc)
