"""The load driver: C, compiled when it is first used and then kept by the content of its sources.

It is a plain shared library: the compiler needs no header of Python, and a wheel of any platform can carry the sources.
load.h is the only declaration: its preprocessor lines are dropped and the rest is handed to cffi.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import attrs

from rocketpy.errors import RocketError

HERE = Path(__file__).resolve().parent
OPENSSL = "openssl/ssl.h"  # without it the driver has no TLS
FLAGS = ("-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Wconversion", "-shared", "-fPIC")


class DriverMissing(RocketError):
    """The load driver cannot be compiled here."""


@attrs.frozen
class Driver:
    """The library and its declarations."""

    ffi: Any
    lib: Any


def cache_directory() -> Path:
    """Return the directory of what the benchmarks keep between runs."""
    return Path(os.environ.get("ROCKETPY_BENCH_CACHE", "~/.cache/rocketpy-bench")).expanduser()


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def has_header(name: str) -> bool:
    """Return True if the C compiler finds `<name>`."""
    words = [*compiler(), "-E", "-x", "c", "-"]
    return subprocess.run(words, input=f"#include <{name}>".encode(), capture_output=True, check=False).returncode == 0


def library_name(sources: list[Path], words: list[str]) -> str:
    """Return the name of the library that these sources become, compiled by `words`."""
    digest = hashlib.sha256("\0".join(words).encode())
    for path in sources:
        digest.update(path.read_bytes())
    return f"driver-{digest.hexdigest()[:16]}.so"


def build() -> Path:
    """Compile the driver unless the cache has it; returns its path.

    The name is given to a complete file: a compiler that is killed leaves none of that name, and of two processes that
    build at once each finds a whole one.

    Raises:
        DriverMissing: there is no C compiler, or no place for the library.
    """
    try:
        has_tls = has_header(OPENSSL)
        words = [*compiler(), *FLAGS, *(["-DBENCH_TLS"] if has_tls else [])]
        built = cache_directory() / library_name(sorted(HERE.glob("*.[ch]")), words)
        if built.exists():
            return built
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=built.parent) as directory:
            part = Path(directory) / built.name
            libraries = ["-lssl", "-lcrypto"] if has_tls else []
            sources = [str(path) for path in sorted(HERE.glob("*.c"))]
            subprocess.run([*words, "-o", str(part), *sources, *libraries], check=True, capture_output=True, text=True)
            os.replace(part, built)
        return built
    except subprocess.CalledProcessError as error:
        raise DriverMissing(f"the load driver does not compile: {error.stderr.strip()}") from error
    except OSError as error:
        raise DriverMissing(
            f"cannot build the load driver ({error.filename}: {error.strerror}): install a C compiler (Debian: gcc), "
            "or set CC and ROCKETPY_BENCH_CACHE to a compiler and a writable directory"
        ) from error


@functools.cache
def load_driver() -> Driver:
    """Return the driver, built first where it has to be. Raises: DriverMissing: it cannot be built."""
    from cffi import FFI

    ffi = FFI()
    lines = (HERE / "load.h").read_text().splitlines(True)
    ffi.cdef("".join(line for line in lines if not line.lstrip().startswith("#")))
    return Driver(ffi, ffi.dlopen(str(build())))
