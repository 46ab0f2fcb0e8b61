"""Lists all that makes a start short and an idle broker small, and does the last of it before workers are forked.

Each step is measured by what it costs to leave it out. One that gains less than 2 % of idle memory or of a start goes.

    step                                        place                            without it
    arguments are parsed in a child             cli/main.py                      memory +3 % (CPU -4 %)
    modules are imported meanwhile              cli/main.py                      time +5 %
    the store is opened while modules are       store_opening.py                 time +40 %; empty: nothing
    text of generated methods is not kept       cli/main.py                      memory +2 %
    headers, bodies, settings share eq and repr values.py                        CPU +7 %, memory +3 %
    schemas are made when first asked for       remoting/schema.py, bodies       CPU +5 %
    few headers are compiled, trio is there     schema.py, trio_stream.py        memory +2 %
    the parser of filters is imported late      filter/parser.py                 CPU +12 %, memory +4 %
    metrics are imported at the first scrape    workers/manager.py               memory +11 %, CPU +3 % (**)
    a scrape imports no other HTTP server       metrics/scrape.py, families.py   memory +5 % (*)
    a name server reads before it is forked     boot/namesrv.py                  memory +3 % (*)
    a slave's connection starts a replicator    worker_list.py, starts_on        memory +4 %
    replication and failover are imported late  worker_list.py, member.py        time +4 %, memory +3 %
    simple workers are forked from C            reactor/worker_spec.py           memory +6 %
    no large block lies in the heap             share_memory                     memory +4 %
    nor does one while modules are imported     cli/main.py                      memory +3 % (*)
    an empty ring begins at its start again     csrc/ipc/ring.c                  memory +4 % (*)
    numbers of timers lie side by side          csrc/base/map.c                  memory +2 % (*)
    what was imported is frozen                 share_memory                     memory +36 %
    objects are immortal                        share_memory                     memory +21 % (*; Python 3.12 and 3.13)
    types and globals are numbered              share_memory                     memory +3 % (*; Python 3.12 and 3.13)
    free places are filled                      share_memory                     memory +5 % (*; 3.11: +2 %)
    pages of libraries are dropped              share_memory                     memory +4 % (CPU -4 %)
    a guardian imports for its process trees    member.py                        memory of a member +7 %
    a guardian shares its memory as well        member.py                        memory of a member +12 %

Medians of 15 starts of `rocketpy standalone` each, in turns (of a member seven, 77 MiB; on a store of 1 GiB and 800
queues 24, and the shortest of them). Memory is the summed PSS of the processes without the store's files, 58 MiB; CPU
is 0.42 s of all of them up to the first acknowledged send, which comes after 0.38 s. (*): of a broker with everything
on, which has been scraped (bench/idle.py), 72 MiB. (**): before scrapes imported less.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import re
import sys
import types
import weakref
from typing import Any

from rocketpy.native.core import ffi, lib

MAPPED_BYTES = 32_768  # blocks from this size on; tables of the core of this size begin as zeros
M_ARENA_MAX = -8  # malloc.h
READS_UNTIL_NUMBERED = 3  # of a global; code is specialised when it runs again
# Nothing has to happen when one of these ends. Files, sockets, locks, iterators and views of memory are not among them.
OWN_MEMORY_ONLY = frozenset(
    {
        *(object, type, str, bytes, int, float, complex, tuple, list, dict, set, frozenset),
        *(property, classmethod, staticmethod, weakref.ref),
        *(types.FunctionType, types.CodeType, types.CellType, types.MethodType, types.BuiltinFunctionType),
        *(types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType),
        *(types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType),
        *(types.ModuleType, types.MappingProxyType, types.GenericAlias, types.UnionType),
    }
)
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (.*)")
_IS_CODE_OR_CONSTANTS = re.compile(r"r-[-x]p \S+ \S+ [1-9]\d* +/")


def share_memory() -> None:
    """Call it when all is imported, before the first fork.

    A collection of garbage writes to every object that it visits: in a child, to a page that was shared. Frozen objects
    are visited no more, and references to immortal ones are not counted. A large block has a mapping of its own, and
    takes memory page by page as it is used; without a fixed limit malloc would raise it with each larger block that is
    freed, and put the next ones into its heap. A page of a library's code is clean, and comes back from the page cache
    when it is needed; most never are (the self-tests of the TLS library, say). Free places between objects are filled
    last: a child would copy the page of each one that it uses.
    """
    _make_objects_immortal()
    gc.freeze()
    _use_one_arena()
    lib.rp_process_memory_map_blocks(MAPPED_BYTES)
    for start, size in _clean_file_mappings():
        lib.madvise(ffi.cast("void *", start), size, mmap.MADV_DONTNEED)
    lib.rp_python_fill_pools()
    lib.rp_process_memory_fill_heap(MAPPED_BYTES)


def _make_objects_immortal() -> None:
    """Under Python 3.12 and 3.13: number what is here, and count references to it no more; a child that does copies the
    page.

    It does nothing under others (csrc/python/immortal.h), nor in a debug build, which would find strings inconsistent.
    """
    if (3, 12) <= sys.version_info < (3, 14) and not hasattr(sys, "gettotalrefcount"):
        objects = gc.get_objects()
        _number(objects)
        lib.rp_python_make_immortal(id(objects), id(OWN_MEMORY_ONLY), id(types.CodeType))


def _number(objects: list[Any]) -> None:
    """Let the interpreter number what is here: it finds attributes of types and globals of functions by their numbers,
    and writes a number to the type, or to the dictionary of the globals, when it needs it first. A child copies the
    page for that."""
    kinds: list[type] = [object]
    for kind in kinds:
        hasattr(kind, "__init__")
        kinds += type.__subclasses__(kind)
    spaces = {id(each.__globals__): each.__globals__ for each in objects if type(each) is types.FunctionType}
    for space in spaces.values():
        read = types.FunctionType(_read_global.__code__.replace(), space)
        with contextlib.suppress(NameError):  # there are no builtins
            for _ in range(READS_UNTIL_NUMBERED):
                read()


def _read_global() -> str:
    return __name__


def _use_one_arena() -> None:
    """Let the threads of a worker share one arena of malloc: each arena would keep some hundred KiB, and the threads
    are too few to wait for each other."""
    with contextlib.suppress(AttributeError):  # musl has one heap anyway
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def _clean_file_mappings() -> list[tuple[int, int]]:
    """(address, bytes) of every private, unwritable mapping of a file none of whose pages was ever written: code and
    constants. Relocated data is unwritable as well, but has pages of its own (Anonymous), which must stay."""
    found = []
    place: tuple[int, int] | None = None
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if match := _MAPPING.match(line):
                start, end = int(match[1], 16), int(match[2], 16)
                place = (start, end - start) if _IS_CODE_OR_CONSTANTS.match(match[3]) else None
            elif place and line.startswith("Anonymous:") and line.split()[1] == "0":
                found.append(place)
    return found
