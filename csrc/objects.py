"""Compile the C files of csrc/ into objects, in parallel, and only those that have changed.

Needs nothing but Python and a C compiler, so `make build` runs it beside the installation of the Python packages
(`python csrc/objects.py`); setup.py calls `compile_changed` and links the objects into the extension. Each object is
made with the compiler and flags of Python's own extensions, then FLAGS. Its command, the version of the compiler, and
the headers of ours that it includes, stand beside it, so a change of any of them compiles it again.

Environment: CC, CFLAGS, and ROCKETPY_WERROR=1, which makes warnings errors.
"""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CSRC = Path(__file__).resolve().parent
OBJECTS = CSRC.parent / "build" / "objects"
COUNTERS = CSRC.parent / "rocketpy/metrics/counters.py"  # the table that COUNTERS_HEADER is made from
COUNTERS_HEADER = CSRC / "ipc/worker_counters.h"
LIST = "list"  # of all objects: newer than the extension when a C file has gone
FLAGS = ["-std=gnu11", "-O3", "-g", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wconversion", "-Wno-unused-parameter"]


def command(options: Sequence[str]) -> list[str]:
    """The compiler with the flags of an extension of this Python, then `options`."""
    variables = sysconfig.get_config_vars("CC", "CFLAGS", "CCSHARED")
    compiler = os.environ.get("CC") or variables[0] or "cc"
    words = [compiler, variables[1] or "", os.environ.get("CFLAGS", ""), variables[2] or "-fPIC"]
    return [*(word for text in words for word in shlex.split(text)), f"-I{CSRC}", *options]


def version_of(compiler: str) -> str:
    """The first line that the compiler says of itself."""
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    return said.partition("\n")[0]


def is_current(target: Path, made_with: str) -> bool:
    """Return True if the object was made with the same command, after its source and every header it includes."""
    try:
        time_ns = target.stat().st_mtime_ns
        rule = target.with_suffix(".d").read_text().replace("\\\n", " ")
        inputs = rule.partition(":")[2].split()  # none: the compiler was killed while it wrote the rule
        is_newest = bool(inputs) and all(Path(name).stat().st_mtime_ns < time_ns for name in inputs)
        return is_newest and target.with_suffix(".command").read_text() == made_with
    except OSError:  # no object, or a header that is gone
        return False


def compile_one(source: Path, target: Path, compiler: list[str], version: str) -> None:
    """Raises: CalledProcessError: the compiler has said why on standard error."""
    made_with = f"{shlex.join([*compiler, str(source)])}\n{version}"
    if is_current(target, made_with):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}.o")
    dependencies = ["-MMD", "-MF", str(target.with_suffix(".d"))]
    begun_ns = time.time_ns()
    subprocess.run([*compiler, *dependencies, "-c", "-o", str(unfinished), str(source)], check=True)
    os.utime(unfinished, ns=(begun_ns, begun_ns))  # older than what is saved while the compiler runs
    target.with_suffix(".command").write_text(made_with)
    unfinished.replace(target)


def compile_changed(build: Path, options: Sequence[str] | None = None) -> list[str]:
    """Return the objects of every C file, compiled into `build` where they are missing or older than their sources.

    Args:
        options: of the compiler; None: FLAGS, and -Werror where the environment asks for it.

    Raises:
        CalledProcessError: a file does not compile.
    """
    werror = ["-Werror"] if os.environ.get("ROCKETPY_WERROR") == "1" else []
    compiler = command([*FLAGS, *werror] if options is None else options)
    version = version_of(compiler[0])
    targets = {source: (build / source.relative_to(CSRC)).with_suffix(".o") for source in sorted(CSRC.rglob("*.c"))}
    largest_first = sorted(targets.items(), key=lambda pair: -pair[0].stat().st_size)  # none is left over at the end
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done in [pool.submit(compile_one, source, target, compiler, version) for source, target in largest_first]:
            done.result()
    objects = [str(target) for target in targets.values()]
    write_if_changed(build / LIST, "\n".join(objects))
    return objects


def write_counters_header() -> None:
    """Make the header of the counters from their table, before anything reads it."""
    write_if_changed(COUNTERS_HEADER, runpy.run_path(str(COUNTERS))["c_header"]())


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    write_counters_header()
    try:
        compile_changed(OBJECTS)
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
