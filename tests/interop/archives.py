"""Archives of loaded classes (class data sharing): a JVM that maps one starts with half the CPU time.

Tests start hundreds of JVMs. An archive is written once by a JVM that does what the tests' programs do, beside the jars
that it is for. A JVM that cannot use an archive starts without it and says nothing.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]  # warnings about archives would be in what a program prints


def class_path(lib: Path, *after: Path) -> str:
    """Return the jars in one order, then other places: only a path that begins with an archive's own can use it."""
    return ":".join(map(str, [*sorted(lib.glob("*.jar")), *after]))


def archive_of(directory: Path) -> Path:
    """Return where the archive is for this JVM: any other JVM would refuse it."""
    java = Path(shutil.which("java") or "java").resolve()
    about = f"{java} {java.stat().st_mtime_ns if java.exists() else 0}"
    return directory / f"classes-{hashlib.sha256(about.encode()).hexdigest()[:16]}.jsa"


def flags(directory: Path) -> list[str]:
    """Return the flags of a JVM that uses the archive, if there is one."""
    archive = archive_of(directory)
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *QUIET] if archive.exists() else []


def make(directory: Path, run: Callable[[Iterable[str]], None]) -> None:
    """Write the archive, unless it is there. `run` runs a JVM with the flags that it is given, to its orderly end."""
    archive = archive_of(directory)
    begun = archive.with_suffix(".new")
    if not archive.exists():
        begun.unlink(missing_ok=True)
        run([f"-XX:ArchiveClassesAtExit={begun}", *QUIET])
        if begun.exists():  # a JVM without this ability starts as before
            begun.rename(archive)
