"""`--watch`: shows a command's results again and again, until Ctrl-C.

A terminal is redrawn at once when all lines of a round are there, so it neither flickers nor scrolls; anywhere else the
rounds follow one another. A round that fails is shown as such, and the next one is tried: brokers restart. Only if the
first one fails, the command fails.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Awaitable, Callable

import attrs

from rocketpy import aio
from rocketpy.errors import RocketError

from .output import Format, Output, harmless, second_text
from .progress_bar import ProgressBar

Show = Callable[[Output], Awaitable[int | None]]
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
NARROWEST = 20


@attrs.frozen
class Watch:
    """Interval and number of rounds of a command that is shown again and again."""

    every_s: float
    rounds: int | None  # None: until it is interrupted
    title: str

    async def run(self, show: Show, out: Output) -> int | None:
        """Show it round by round. Returns: the exit status of the last round."""
        done = 0
        while True:
            status = await self._round(show, out, is_first=done == 0)
            done += 1
            if done == self.rounds:
                return status
            await aio.sleep(self.every_s)

    async def _round(self, show: Show, out: Output, *, is_first: bool) -> int | None:
        page: list[str] = []
        on_screen = out.format is Format.TEXT and sys.stdout.isatty()
        silent = ProgressBar(None)
        round_out = Output(out.format, page.append, page.append, silent) if on_screen else attrs.evolve(out, bar=silent)
        status: int | None = 1
        try:
            status = await show(round_out)
        except RocketError as error:
            if is_first:
                raise
            round_out.warn(f"error: {' '.join(str(error).split())}")
        if on_screen:
            sys.stdout.write(screen(self._heading(), page))
            sys.stdout.flush()
        return status

    def _heading(self) -> str:
        return f"{self.title}, every {self.every_s:g} s: {second_text(round(time.time() * 1000))}"


def screen(heading: str, page: list[str]) -> str:
    """The text that draws a page from the top left corner, as far as the terminal has room for it. Long lines are
    continued on the next one."""
    size = shutil.get_terminal_size()
    width = max(size.columns, NARROWEST)
    texts = [heading, "", *(harmless(line) for text in page for line in text.split("\n"))]
    lines = [text[at : at + width] for text in texts for at in range(0, max(len(text), 1), width)]
    if len(lines) >= size.lines:
        lines[size.lines - 2 :] = [f"... {len(lines) - size.lines + 2} lines more"]
    return HOME + "".join(f"{CLEAR_LINE}{line}\n" for line in lines) + CLEAR_BELOW
