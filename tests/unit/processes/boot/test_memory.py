"""What a process does with its memory before it forks workers."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.processes.boot.memory import share_memory

IS_IMMORTAL = (3, 12) <= sys.version_info < (3, 14)  # what is there before a fork


def _file_kib() -> int:
    """Of this process: its pages of files."""
    found = re.search(r"RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


def test_library_pages_go_and_come_back_and_objects_are_frozen() -> None:
    pid = os.fork()
    if pid == 0:
        sum(map(len, re.findall(rb".", Path(os.__file__).read_bytes())))  # touches pages of libraries
        before = _file_kib()
        share_memory()
        is_smaller, still_works = _file_kib() < before, re.sub("a", "b", "a") == "b"
        os._exit(0 if is_smaller and still_works and gc.get_freeze_count() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def is_in_heap(block: bytes) -> bool:
    """Whether malloc has put it into its heap."""
    (heap,) = re.findall(r"(\w+)-(\w+) .*\[heap\]", Path("/proc/self/maps").read_text())
    return int(heap[0], 16) <= id(block) < int(heap[1], 16)


LARGE = """
from rocketpy.cli.main import keep_large_blocks_apart
from tests.unit.processes.boot.test_memory import is_in_heap
keep_large_blocks_apart()
larger = bytes(16 << 20)
del larger
print(is_in_heap(bytes(1 << 20)))
"""
THREAD = """
import threading
from rocketpy.processes.boot.memory import share_memory
from tests.unit.processes.boot.test_memory import is_in_heap
share_memory()
found = []
thread = threading.Thread(target=lambda: found.append(is_in_heap(bytes(10_000))))
thread.start()
thread.join()
print(found)
"""

COUNTED = """
import sys
from rocketpy.processes.boot.memory import share_memory
def is_counted(thing):
    before = sys.getrefcount(thing)
    more = [thing] * 100
    return sys.getrefcount(thing) > before
"""
BEFORE_A_FORK = f"""{COUNTED}
import enum
class Thing:
    def __init__(self):
        self.name = "".join(["na", "me"])
        self.table = {{self.name: (10**30, 1.5, b"bytes")}}
class Kind(enum.Enum):
    ONE = object()
thing = Thing()
code = Thing.__init__.__code__
things = [thing, thing.name, thing.table, *thing.table["name"], Kind.ONE, Thing, Thing.__init__, code, code.co_consts]
share_memory()
print({{is_counted(each) for each in things}}, is_counted(object()))
"""
RUN_BEFORE = """
import sys
from rocketpy.processes.boot.memory import share_memory
class Thing:
    field = 1.5
    def method(self, more=("default", 2.5)):
        return more
def use():
    thing, pair = Thing(), ("text of a constant", 3.5)
    found = [thing.field, thing.method(), thing.method, Thing, use, b"bytes", 4.5]
    found.append(5.5)
    found.append(pair)
    found.extend(pair)
    return found, f"{pair[0]}{found[-1]}"
def counts():
    return [sys.getrefcount(each) for each in constants]
constants = [*use.__code__.co_consts, *Thing.method.__defaults__, Thing.field, Thing, use]
for _ in range(100):
    use()
share_memory()
before = counts()
for _ in range(1000):
    use()
print([after - count for count, after in zip(before, counts())])
"""
AS_BEFORE = """
import gc, sys
from rocketpy.processes.boot.memory import share_memory
class Thing:
    pass
name, other, thing, table = "".join(["na", "me"]), "".join(["oth", "er"]), Thing(), {"a": [1.5]}
thing.table = table
share_memory()
same = sys.intern(name) is sys.intern("".join(["na", "me"]))
name += other
table["a"].append(10**30)
table[name] = table.pop("a")
thing.table, Thing.more = {}, len
gc.unfreeze()
gc.collect()
print(same, name, table, thing.more(thing.table))
"""
ENDINGS = """
import os, socket
from rocketpy.processes.boot.memory import share_memory
class Told:
    def __del__(self):
        print("told")
class Holder:
    pass
def steps():
    try:
        yield
    finally:
        print("left")
holder, told, buffer, step = Holder(), Told(), bytearray(8), steps()
next(step)
holder.view, holder.socket = memoryview(buffer), socket.socket()
descriptor = holder.socket.fileno()
share_memory()
del told, step, holder.view, holder.socket
buffer.append(1)  # cannot be done while there is a view
print(os.path.exists(f"/proc/self/fd/{descriptor}"))
"""
CHILD = """
import os, re
from pathlib import Path
from rocketpy.processes.boot.memory import share_memory
def copied_kib():
    return int(re.search(r"Private_Dirty: +(\\d+)", Path("/proc/self/smaps_rollup").read_text())[1])
def of_child():
    read, write = os.pipe()
    if os.fork() == 0:
        before = copied_kib()
        use()
        os.write(write, str(copied_kib() - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read, 100))
"""
PAGES = f"""{CHILD}
def use():
    for number in numbers:
        pass
numbers = [each / 3 for each in range(200_000)]
before = of_child()
share_memory()
print(before > 2000, of_child() < before / 2)
"""
PLACES = f"""{CHILD}
def use():
    global made
    made = [bytes(size) for _ in range(count)]
for size, count in (40, 20_000), (700, 3_000):
    kept = [bytes(size) for _ in range(10 * count)]
    del kept[::8]
    bytes(20_000)  # lets malloc sort them
    before = of_child()
    share_memory()
    print(before > 8000, of_child() < before / 2)
"""
NUMBERS = f"""{CHILD}
import types
def use():
    for each in kinds:
        each.__init__
    for each in spaces:
        read = types.FunctionType((lambda: __name__).__code__.replace(), each)
        read(), read(), read()
kinds = [type(f"Kind{{each}}", (), {{}}) for each in range(2000)]
spaces = [{{"__name__": "module", "__builtins__": __builtins__}} for each in range(2000)]
functions = [types.FunctionType(use.__code__, each) for each in spaces]
before = of_child()
share_memory()
print(before > 2000, of_child() < before / 2)
"""


def printed_by(program: str, allocator: str = "default") -> str:
    """Return what a new interpreter prints that ends well: this one has a heap with holes, and threads that ended.

    Args:
        allocator: "debug" finds objects that are used after they were freed.
    """
    command, variables = [sys.executable, "-c", program], {**os.environ, "PYTHONMALLOC": allocator}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=variables)
    return done.stdout.strip()


def test_a_large_block_is_not_in_the_heap_after_a_larger_one_was_freed() -> None:
    """Fault: The hole that it left was taken by tables of workers, and each of them by a MiB of memory."""
    assert printed_by(LARGE) == "False"


def test_threads_use_the_heap_of_their_process() -> None:
    """Fault: Each thread that had run kept a heap of its own."""
    assert printed_by(THREAD) == "[True]"


def test_references_to_what_was_there_before_a_fork_are_counted_no_more() -> None:
    assert printed_by(BEFORE_A_FORK) == f"{{{not IS_IMMORTAL}}} True"


def test_code_that_ran_before_a_fork_moves_no_count() -> None:
    """An interpreter that counts a reference and does not count its end would free a constant in use, in the end."""
    moved = json.loads(printed_by(RUN_BEFORE))
    assert len(moved) > 5 and max(map(abs, moved)) < 10  # in 1000 runs


def test_objects_from_before_a_fork_behave_as_always_and_the_process_ends_well() -> None:
    assert printed_by(AS_BEFORE, "debug") == f"True nameother {{'nameother': [1.5, {10**30}]}} 0"


def test_what_has_to_happen_when_an_object_ends_happens_after_a_fork_as_well() -> None:
    assert printed_by(ENDINGS).split() == ["told", "left", "False"]


def test_a_child_that_uses_objects_of_its_parent_copies_few_pages() -> None:
    """Fault: Workers copied each page whose objects they used, a fifth of an idle broker's memory."""
    assert printed_by(PAGES) == f"True {IS_IMMORTAL}"


def test_a_child_makes_objects_in_pages_of_its_own() -> None:
    """Fault: A new object lay in each free place between old ones, and a worker copied a page for it."""
    assert printed_by(PLACES).split() == ["True"] * 4


def test_a_child_that_runs_code_copies_no_page_to_number_a_type_or_globals() -> None:
    """Fault: The interpreter numbered types and globals anew in each worker, which copied their pages."""
    assert printed_by(NUMBERS) == f"True {IS_IMMORTAL}"
