"""What makes a server start in a fraction of a second; nothing of it changes what the server does.

    collect little   while modules are imported nearly everything stays: only the young are looked at, often enough that
                     what does not stay leaves no holes; as usual again before the fork (memory.py)
    classes          attrs writes the methods of each class as source text and compiles it at every start: a quarter of
                     the start. The code is kept as Python keeps that of modules, in `__pycache__`, found again by its
                     source text; a file of another Python, or none, costs time and nothing else
    no sources       attrs keeps the text of those methods for tracebacks, 800 KB over all workers; here it is let go
    no subprocess    trio asks ctypes where the thread library is, which runs ldconfig, and a compiler where that fails.
                     What it wants it for, names of threads, is in the C library itself; here threads go without

docs/adr/0054 has the measurement.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import gc
import hashlib
import importlib.util
import marshal
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import ClassVar

CACHE = Path(__file__).parent / "__pycache__" / f"classes.{sys.implementation.cache_tag}.marshal"
MAGIC = importlib.util.MAGIC_NUMBER
DATA_AT = len(MAGIC) + hashlib.sha256().digest_size  # behind the digest of the data
THRESHOLDS = 2_000, 10, 1_000  # of the garbage collector's generations; never the oldest
CLASSES_MAX = 10_000  # more than there can be; bounds the cache
_SALT = re.compile(r"(?<=hash\(\()\s*-?\d+(?=,)")


class ClassCode:
    """Compiled source texts, by what they are a digest of; a text is made into code objects when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._load()  # what was used is let go: workers would have it in memory for ever
        self._used: set[bytes] = set()
        self._new: dict[bytes, bytes] = {}

    def compile(self, source: str, filename: str, mode: str) -> CodeType:
        """As the built-in.

        The number that begins a generated `__hash__` is another one in each process. Any will do that stays the same
        as long as the class lives, so it counts for nothing here.
        """
        text = f"{filename}\n{mode}\n{_SALT.sub('', source)}"
        key = hashlib.sha256(text.encode()).digest()
        known = self._known.pop(key, None)
        if known is not None:
            self._used.add(key)
            return marshal.loads(known)  # type: ignore[no-any-return]  # what we saved
        code = compile(source, filename, mode)
        if key not in self._used and len(self._new) < CLASSES_MAX:
            self._new[key] = marshal.dumps(code)
        return code

    def save(self) -> None:
        """What was used, if any of it is new, and Python may write bytecode; a directory not ours is left alone."""
        if not self._new or sys.dont_write_bytecode:
            return
        used = {key: code for key, code in self._load().items() if key in self._used}
        aside = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            data = marshal.dumps(used | self._new)
            aside.write_bytes(MAGIC + hashlib.sha256(data).digest() + data)
            aside.replace(self._path)

    def _load(self) -> dict[bytes, bytes]:
        try:
            content = self._path.read_bytes()
        except OSError:
            return {}
        digest, data = content[len(MAGIC) : DATA_AT], content[DATA_AT:]
        if not content.startswith(MAGIC) or hashlib.sha256(data).digest() != digest:
            return {}  # of another Python; or the power went while it was written, and marshal trusts what it reads
        return marshal.loads(data)  # type: ignore[no-any-return]  # what we saved


class _Forgetful(dict[str, object]):
    """A cache that keeps nothing."""

    def setdefault(self, key: str, default: object = None) -> object:
        return default


class _NoSources:
    """In place of the module `linecache`."""

    cache: ClassVar[dict[str, object]] = _Forgetful()


@contextlib.contextmanager
def quick_start(path: Path = CACHE) -> Iterator[ClassCode]:
    """Around everything that a server does, entered before its modules are imported."""
    import attr._make

    thresholds = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    code, find_library = ClassCode(path), ctypes.util.find_library
    maker = vars(attr._make)
    maker["compile"] = code.compile  # hides the built-in in that module alone
    sources, maker["linecache"] = maker["linecache"], _NoSources
    ctypes.util.find_library = lambda name: None
    try:
        yield code
    finally:
        ctypes.util.find_library = find_library
        maker.pop("compile", None)
        maker["linecache"] = sources
        gc.set_threshold(*thresholds)
        code.save()


def main() -> None:
    """`python -m rocketpy.startup.boot.quick_start`: compile what servers need, when rocketpy is built."""
    with quick_start():
        import rocketpy.startup.boot.standalone
        import rocketpy.startup.boot.worker_list  # noqa: F401  # for their classes


if __name__ == "__main__":
    main()
