"""The compiled core with crash points, built from csrc/ into build/crash-core and loaded in the product's place."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[3]
CSRC = ROOT / "csrc"
HERE = Path(__file__).parent
NAME = "rocketpy.native._rocketpy"
OPTIONS = ["-std=gnu11", "-O1", "-g", "-w"]
BORN_NS = 1
WRAPPED = ("fdatasync", "fsync", "syncfs", "fallocate")
DECLARATIONS = """
extern int crash_events_on;
rp_status crash_put(rp_commitlog *log, const rp_put *put);
extern "Python+C" void crash_event(int event, const char *name, int descriptor);
"""


def load() -> ModuleType:
    """Make `rocketpy.native.core` the core with crash points; in this process there must be no other yet.

    A store that the simulated disk gives back is a copy, which cannot have the time of birth of its original: here all
    files have the same.
    """
    assert NAME not in sys.modules, "the product's core is loaded already"
    spec = importlib.util.spec_from_file_location(NAME, build())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    from rocketpy.store.recovery import store_lock

    store_lock.birth_ns = lambda descriptor: BORN_NS
    return module


def build() -> Path:
    """The extension, made anew when any of its sources has changed. Of several processes one makes it."""
    sources = [*sorted(CSRC.rglob("*.[ch]")), *sorted(CSRC.glob("*.py")), HERE / "crash_core.c", Path(__file__)]
    digest = hashlib.sha256(sys.version.encode())
    for path in sources:
        digest.update(path.read_bytes())
    target = ROOT / "build" / "crash-core" / digest.hexdigest()[:16]
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():  # another process has not made it meanwhile
                _make(target)
    return next((target / "rocketpy" / "native").glob("_rocketpy*.so"))


def _make(target: Path) -> None:
    made = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        _compile(made)
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _module(name: str) -> Any:
    """A module of csrc/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, CSRC / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(directory: Path) -> None:
    from cffi import FFI

    product, objects = _module("build_native"), _module("objects")
    headers = [*product.HEADERS, "workers/send/send_store.h"]
    ffi = FFI()
    ffi.cdef(product.LIBC)
    for name in headers:
        ffi.cdef(product.declarations(name))
    ffi.cdef(DECLARATIONS)
    own = "extern int crash_events_on;\nrp_status crash_put(rp_commitlog *, const rp_put *);\n"
    ffi.set_source(
        NAME,
        product.LIBC_HEADERS + "".join(f'#include "{name}"\n' for name in headers) + own,
        sources=[str(HERE / "crash_core.c")],
        extra_objects=objects.compile_changed(ROOT / "build" / "crash-objects", [*OPTIONS, "-DRP_WITH_CRASH_POINTS=1"]),
        include_dirs=[str(CSRC)],
        define_macros=[("RP_WITH_CRASH_POINTS", "1")],
        extra_compile_args=OPTIONS,
        extra_link_args=[f"-Wl,--wrap={name}" for name in WRAPPED],
        libraries=["pthread"],
    )
    ffi.compile(tmpdir=str(directory))
