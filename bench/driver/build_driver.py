"""Build bench.driver._driver, the C load driver, with cffi: `python bench/driver/build_driver.py`.

load.h is its only declaration: the preprocessor lines are dropped and the rest is handed to cffi.
"""

import os
import tempfile
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Wconversion"]


def build() -> Path:
    """Compile; returns the extension's path.

    The name that counts as built is given to a complete file: a compiler that is killed leaves a part of one.
    """
    ffi = FFI()
    lines = (HERE / "load.h").read_text().splitlines(True)
    ffi.cdef("".join(line for line in lines if not line.lstrip().startswith("#")))
    ffi.set_source(
        "_driver",
        '#include "load.h"',
        sources=[str(path) for path in sorted(HERE.glob("*.c")) if path.name != "_driver.c"],
        include_dirs=[str(HERE)],
        extra_compile_args=FLAGS,
    )
    with tempfile.TemporaryDirectory(prefix="build-", dir=HERE) as directory:
        built = Path(ffi.compile(tmpdir=directory))
        os.replace(built, HERE / built.name)
    return HERE / built.name


if __name__ == "__main__":
    print(build())
