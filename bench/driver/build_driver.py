"""Build bench.driver._driver, the C load driver, with cffi: `python bench/driver/build_driver.py`.

load.h is its only declaration: the preprocessor lines are dropped and the rest is handed to cffi.
"""

from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FLAGS = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-Wconversion"]


def build() -> Path:
    """Compile; returns the extension's path."""
    ffi = FFI()
    lines = (HERE / "load.h").read_text().splitlines(True)
    ffi.cdef("".join(line for line in lines if not line.lstrip().startswith("#")))
    ffi.set_source(
        "bench.driver._driver",
        '#include "load.h"',
        sources=[str(path.relative_to(ROOT)) for path in sorted(HERE.glob("*.c")) if path.name != "_driver.c"],
        include_dirs=[str(HERE)],
        extra_compile_args=FLAGS,
    )
    return Path(ffi.compile(tmpdir=str(ROOT)))


if __name__ == "__main__":
    print(build())
