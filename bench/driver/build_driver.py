"""Build bench.driver._driver, the C load driver, with cffi: `python bench/driver/build_driver.py`.

load.h is its only declaration: the preprocessor lines are dropped and the rest is handed to cffi.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
OPENSSL = "openssl/ssl.h"  # without it the driver has no TLS
FLAGS = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Wconversion"]


def has_header(name: str) -> bool:
    """Return True if the C compiler finds `<name>`."""
    words = [os.environ.get("CC", "cc"), "-E", "-x", "c", "-"]
    return subprocess.run(words, input=f"#include <{name}>".encode(), capture_output=True, check=False).returncode == 0


def build() -> Path:
    """Compile; returns the extension's path.

    The name that counts as built is given to a complete file: a compiler that is killed leaves a part of one.
    """
    ffi = FFI()
    has_tls = has_header(OPENSSL)
    lines = (HERE / "load.h").read_text().splitlines(True)
    ffi.cdef("".join(line for line in lines if not line.lstrip().startswith("#")))
    ffi.set_source(
        "_driver",
        '#include "load.h"',
        sources=[str(path) for path in sorted(HERE.glob("*.c")) if path.name != "_driver.c"],
        include_dirs=[str(HERE)],
        extra_compile_args=[*FLAGS, "-DBENCH_TLS"] if has_tls else FLAGS,
        libraries=["ssl", "crypto"] if has_tls else [],
    )
    with tempfile.TemporaryDirectory(prefix="build-", dir=HERE) as directory:
        built = Path(ffi.compile(tmpdir=directory))
        os.replace(built, HERE / built.name)
    return HERE / built.name


if __name__ == "__main__":
    print(build())
