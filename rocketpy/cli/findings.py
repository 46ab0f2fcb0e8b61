"""The findings of `rocketpy doctor`, and its report.

Short: doctor.py and client_checks.py make findings, and load the modules only that they need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from rocketpy import __version__

OTHERS = 0o077  # of a file's mode: the group, and everybody else


@attrs.frozen
class Finding:
    """One line of the report; `remedy` is empty where all is well."""

    subject: str
    found: str
    remedy: str = ""
    is_fatal: bool = False


def open_to_others(subject: str, path: str | Path) -> Iterator[Finding]:
    """Yield a finding if others than the owner may read or change a file of secrets."""
    if Path(path).stat().st_mode & OTHERS:
        yield Finding(subject, f"{path}: other users may read it", f"chmod 600 {path}")


def report(findings: Sequence[Finding]) -> int:
    """Print a table of findings. Returns: the exit status, 1 if one of them is fatal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rocketpy.admin.output import harmless

    table = Table(title=f"rocketpy {__version__}", title_justify="left")
    for heading in ("what", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        style = "red" if finding.is_fatal else None
        texts = finding.subject, finding.found, finding.remedy or "fine"
        table.add_row(*(Text(harmless(text)) for text in texts), style=style)  # a str would be markup
    Console().print(table)
    return int(any(finding.is_fatal for finding in findings))
