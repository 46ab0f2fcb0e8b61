"""The tables of mutants: `*.txt` in this directory.

    # What the table is about.
    file csrc/store/transactions/half_states.c
    test tests/unit/native/test_half_messages.py
    test tests/unit/native/test_half_renewal.py

    the base moves back
    -    if (base > states->base) rp_store_release(&states->base, base);
    +    rp_store_release(&states->base, base);

`file` is the source of the mutants that follow, and one of the tests finds each of them. A mutant begins with its
name. The lines after `-` are in the source just once, and those after `+` take their place. A line that begins with
`# ` is a comment.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs

TABLES = Path(__file__).parent


@attrs.frozen
class KnownMutant:
    """A plausible slip. `old` occurs once in the file at `path`; one of `tests` fails with `new` in its place."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


def mutants_of_packages() -> list[KnownMutant]:
    return mutants_in(_lines(TABLES / "packages.txt"))


def mutants_of_core() -> list[KnownMutant]:
    return [mutant for table in sorted(TABLES.glob("core_*.txt")) for mutant in mutants_in(_lines(table))]


def mutants_in(lines: Iterable[str]) -> list[KnownMutant]:
    """Read a table. Raises: ValueError: a line belongs to no mutant, or a mutant has no test."""
    found: list[KnownMutant] = []
    path, tests = "", list[str]()
    for line in lines:
        mark, rest = line[:1], line[1:] + "\n"
        if not line or line.startswith("# "):
            continue
        if line.startswith("file "):
            path, tests = line.removeprefix("file "), []
        elif line.startswith("test "):
            tests.append(line.removeprefix("test "))
        elif mark not in "+-":
            found.append(KnownMutant(f"{Path(path).name}: {line}", path, "", "", tuple(tests)))
        elif not found or found[-1].path != path or not tests:
            raise ValueError(f"{line!r} belongs to no mutant of {path} that names a test")
        elif mark == "-":
            found[-1] = attrs.evolve(found[-1], old=found[-1].old + rest)
        else:
            found[-1] = attrs.evolve(found[-1], new=found[-1].new + rest)
    return found


def _lines(table: Path) -> list[str]:
    return table.read_text(encoding="utf-8").splitlines()
