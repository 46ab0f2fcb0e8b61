"""What makes a server start in a fraction of a second; nothing of it changes what the server does.

    collect later    no garbage collection while modules are imported: nearly everything stays. What does not is
                     collected once, before the fork; the supervisor switches collection on again
    classes          attrs writes the methods of each class as source text and compiles it at every start: a quarter of
                     the start. The code is kept as Python keeps that of modules, in `__pycache__`, found again by its
                     exact source text; a file of another Python, or none, costs time and nothing else
    no subprocess    trio asks ctypes where the thread library is, which runs ldconfig, and a compiler where that fails.
                     What it wants it for, names of threads, is in the C library itself; here threads go without

docs/adr/0054 has the measurement.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import gc
import importlib.util
import marshal
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

CACHE = Path(__file__).parent / "__pycache__" / f"classes.{sys.implementation.cache_tag}.marshal"
MAGIC = importlib.util.MAGIC_NUMBER
CLASSES_MAX = 10_000  # more than there can be: whoever adds without end is cut off


class ClassCode:
    """Compiled source texts by (file name, text)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._load()
        self._is_changed = False

    def compile(self, source: str, filename: str, mode: str) -> CodeType:
        """As the built-in."""
        key = filename, source
        code = self._known.get(key)
        if code is None:
            code = compile(source, filename, mode)
            if len(self._known) < CLASSES_MAX:
                self._known[key] = code
                self._is_changed = True
        return code

    def save(self) -> None:
        """If there is anything new, and Python may write bytecode; a directory that is not ours is left alone."""
        if not self._is_changed or sys.dont_write_bytecode:
            return
        aside = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            aside.write_bytes(MAGIC + marshal.dumps(self._known))
            aside.replace(self._path)

    def _load(self) -> dict[tuple[str, str], CodeType]:
        try:
            data = self._path.read_bytes()
            if data.startswith(MAGIC):
                known = marshal.loads(data[len(MAGIC) :])
                return known if isinstance(known, dict) else {}
        except (OSError, ValueError, EOFError, TypeError):
            pass
        return {}


@contextlib.contextmanager
def quick_start(path: Path = CACHE) -> Iterator[ClassCode]:
    """Around everything that a server does, entered before its modules are imported."""
    import attr._make

    gc.disable()
    code, find_library = ClassCode(path), ctypes.util.find_library
    maker = vars(attr._make)
    maker["compile"] = code.compile  # hides the built-in in that module alone
    ctypes.util.find_library = lambda name: None
    try:
        yield code
    finally:
        ctypes.util.find_library = find_library
        maker.pop("compile", None)
        gc.enable()
        code.save()


def main() -> None:
    """`python -m rocketpy.startup.quick_start`: compile what servers need, when rocketpy is built."""
    with quick_start():
        import rocketpy.startup.standalone
        import rocketpy.startup.workers  # noqa: F401  # for their classes


if __name__ == "__main__":
    main()
