"""Golden scripts: commands, `---`, and what they print, in a text file that a reviewer reads like a story.

    # what this is about
    > a command and its arguments
    > another
    ---
    what they print

A script is a row of such blocks with an empty line between them; lines that begin with `#` are kept as they are. With
ROCKETPY_UPDATE_SCRIPTS=1 the expectations are written anew, and the change shows in the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

UPDATE_VARIABLE = "ROCKETPY_UPDATE_SCRIPTS"
SEPARATOR = "---"
Command = Callable[[str], Iterable[str]]  # the text of one command -> the lines it prints


def replay(script: str, run: Command) -> str:
    """The script with what its commands print now. Lines that would end a block (empty ones) are shown as a dot."""
    blocks = []
    for block in script.strip("\n").split("\n\n"):
        head = block.split(f"\n{SEPARATOR}")[0].splitlines()
        printed = [line.rstrip() or "." for line in _printed(head, run)]
        has_commands = any(line.startswith("> ") for line in head)
        blocks.append("\n".join(head + ([SEPARATOR] if has_commands else []) + printed))
    return "\n\n".join(blocks) + "\n"


def _printed(head: list[str], run: Command) -> Iterable[str]:
    for line in head:
        if line.startswith("> "):
            yield from run(line[2:])
        elif line and not line.startswith("#"):
            raise ValueError(f"{line!r}: lines begin with '> ' (a command) or '#'")


def check(path: Path, run: Command) -> None:
    """Replay a script against its own expectations, or write them.

    Raises:
        AssertionError: it prints something else now.
    """
    expected = path.read_text()
    found = replay(expected, run)
    if os.environ.get(UPDATE_VARIABLE) == "1":
        path.write_text(found)
        return
    assert found.splitlines() == expected.splitlines(), f"{path.name}: if it is right so, {UPDATE_VARIABLE}=1 writes it"
