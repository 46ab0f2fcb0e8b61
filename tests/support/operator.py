"""What an operator does on the machine of a broker: the commands of a page, as they stand there.

Bash runs them. `systemctl`, `journalctl` and `timedatectl` are stand-ins, because the machine of a test has no systemd
and one clock for all: they ask this process, which starts the broker, shows its log, and sets its clock. Paths and
ports of the page are replaced by those of the test.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs

from .follow_page import blocks_of
from .rules import ROOT

STAND_IN = """#!/bin/sh
echo "{name} $*" > {place}/orders
read -r status < {place}/statuses
cat {place}/output
exit "$status"
"""
COMMANDS_S = 180.0
OVER = "over"

Orders = Mapping[str, Callable[[], str]]  # the words of a command, and what it does; returns what it prints


def blocks_of_section(page: str, heading: str) -> list[str]:
    """Return the commands of a section of a page of docs/, one text for each block.

    Raises:
        AssertionError: the page has no such section, or the section no commands.
    """
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,3}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {heading}"
    blocks = [block.commands for block in blocks_of(found[2])]
    assert blocks, f"section {heading} of {page} has no commands"
    return blocks


@attrs.frozen
class Machine:
    """The machine of one broker.

    Args:
        orders: what the stand-ins do, by the beginning of their commands.
        here: texts of pages, and what they are in this test: paths, ports, names.
    """

    orders: Orders
    here: Mapping[str, str]

    def run(self, commands: str, **more: str) -> str:
        """Run the commands of a block in one shell. `more`: further texts of the page to replace. Returns: the output.

        Raises:
            AssertionError: the last command failed, or the stand-ins do not know an order.
        """
        for theirs, ours in {**self.here, **more}.items():
            commands = commands.replace(theirs, ours)
        with tempfile.TemporaryDirectory(prefix="rocketpy-operator-") as directory, self._answering(Path(directory)):
            path = os.pathsep.join((directory, str(Path(sys.executable).parent), os.environ["PATH"]))
            words = ["bash", "-c", f"set -o pipefail\n{commands}"]
            environment = os.environ | {"PATH": path}
            done = subprocess.run(
                words,
                env=environment,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMANDS_S,
                check=False,
            )
        print(f"$ {commands}{done.stdout}{done.stderr}")
        assert done.returncode == 0, f"{commands}ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def _answering(self, place: Path) -> Iterator[None]:
        """Answer the stand-ins until the block ends."""
        for name in ("systemctl", "journalctl", "timedatectl"):
            script = place / name
            script.write_text(STAND_IN.format(name=name, place=place))
            script.chmod(0o755)
        for pipe in ("orders", "statuses"):
            os.mkfifo(place / pipe)
        unknown: list[str] = []

        def answer() -> None:
            while (order := (place / "orders").read_text().strip()) != OVER:
                do = next((do for words, do in self.orders.items() if order.startswith(words)), None)
                if do is None:
                    unknown.append(order)
                (place / "output").write_text(do() if do is not None else "")
                (place / "statuses").write_text("0\n" if do is not None else "1\n")

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            (place / "orders").write_text(f"{OVER}\n")
            thread.join()
        assert not unknown, f"the page orders what this test does not know: {unknown}"
