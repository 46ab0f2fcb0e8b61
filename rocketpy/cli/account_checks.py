"""The part of `rocketpy doctor` that looks at the files of accounts.

Short: doctor.py loads it only for a server with accounts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from rocketpy.acl.files import AclFiles
from rocketpy.errors import ConfigError

from .findings import Finding, open_to_others

SUBJECT = "accounts"


def account_findings(home: Path) -> Iterator[Finding]:
    """Yield findings about the files of accounts below `home` (rocketmqHome).

    They say how many accounts there are, or which mistake would end the next start, and which files others may read.
    """
    files = AclFiles(home, now_ms=lambda: time.time_ns() // 1_000_000)
    try:
        count = len(files.load().by_key)
    except ConfigError as exc:
        yield Finding(SUBJECT, str(exc), "correct the file: the next start would fail", True)
    else:
        remedy = "" if count else "write an account: only white addresses may send requests"
        yield Finding(SUBJECT, f"{count} in {files.default_file} and {files.directory}", remedy)
    for path in files.paths:
        yield from open_to_others(SUBJECT, path)
