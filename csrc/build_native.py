"""Build rocketpy.native._rocketpy, the compiled core, with cffi.

Public headers hold only types, enum constants and prototypes: their preprocessor lines are dropped and the rest is
handed to cffi, so that every declaration exists once. All C files of csrc/ are linked into one extension.

Run by setup.py (`pip install .`, `setup.py build_ext --inplace`), which compiles the C files (objects.py) and adds the
objects.
"""

import sysconfig
from pathlib import Path

from cffi import FFI

CSRC = Path(__file__).resolve().parent
# What Python may call, in the order of what they use. Headers with inline code or for C alone are not named here.
HEADERS = [
    "base/status.h",
    "base/host.h",
    "base/shared.h",
    "base/crc32.h",
    "base/numbers.h",
    "store/log/record.h",
    "store/filters/filter.h",
    "wire/codes.h",
    "wire/header.h",
    "wire/reply.h",
    "wire/peer.h",
    "wire/sha1.h",
    "wire/signature.h",
    "ipc/access.h",
    "ipc/limits.h",
    "ipc/worker.h",
    "ipc/ring.h",
    "ipc/worker_counters.h",
    "ipc/filter_messages.h",
    "ipc/worker_messages.h",
    "ipc/master_link.h",
    "ipc/member.h",
    "store/control/control_block.h",
    "store/log/broker_clock.h",
    "store/timers/delivery_marks.h",
    "store/timers/timer_marks.h",
    "store/timers/timers.h",
    "store/filters/filter_marks.h",
    "store/log/commitlog.h",
    "store/log/log_view.h",
    "store/queues/consume_queue.h",
    "store/transactions/half_states.h",
    "store/transactions/half_recovery.h",
    "store/queues/consume_queue_ext.h",
    "store/log/flush.h",
    "store/dispatch/dispatch.h",
    "store/log/mapped_file.h",
    "store/recovery/recovery.h",
    "store/index/index_file.h",
    "store/recovery/rebuild.h",
    "store/recovery/verify.h",
    "replication/frames.h",
    "replication/slave_table.h",
    "replication/confirm.h",
    "replication/master.h",
    "replication/slave_stream.h",
    "workers/shared/store_loop.h",
    "ipc/process.h",
    "workers/selector/selector.h",
    "workers/codec/codec.h",
    "workers/send/send.h",
    "workers/pull/pull.h",
    "arrow/rows.h",
    "arrow/columns.h",
]
# The glue that cffi generates runs once per call, and a call works through a batch: -O1 halves the time it takes to
# compile, a fifth of the build. Its warnings are not ours.
GLUE_FLAGS = ["-std=gnu11", "-O1", "-fvisibility=hidden", "-w"]

# Of the C library, where Python lacks it.
LIBC_HEADERS = "#include <sys/mman.h>\n#include <sys/stat.h>\n"
LIBC = """
int madvise(void *start, size_t size, int advice);
int munmap(void *start, size_t size);
struct statx_timestamp { int64_t tv_sec; uint32_t tv_nsec; ...; };
struct statx { uint32_t stx_mask; struct statx_timestamp stx_btime; ...; };
int statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *found);
"""
# Part of the glue, as C tests have no interpreter. The wheel is for 3.11 and later; cffi would hide what is not in 3.2.
PYTHON_HEADERS = ["python/immortal.h", "python/pools.h"]
PYTHON = """
void rp_python_make_immortal(uintptr_t objects, uintptr_t kinds, uintptr_t code);
void rp_python_fill_pools(void);
"""
HAS_STABLE_ABI = not (sysconfig.get_config_var("Py_GIL_DISABLED") or sysconfig.get_config_var("Py_DEBUG"))


def declarations(header: str) -> str:
    """The header without its preprocessor lines."""
    return "".join(line for line in (CSRC / header).read_text().splitlines(True) if not line.lstrip().startswith("#"))


ffi = FFI()
ffi.cdef(LIBC + PYTHON)
for name in HEADERS:
    ffi.cdef(declarations(name))
ffi.set_source(
    "rocketpy.native._rocketpy",
    LIBC_HEADERS + "".join(f'#include "{name}"\n' for name in [*HEADERS, *PYTHON_HEADERS]),
    include_dirs=[str(CSRC)],
    depends=[str(CSRC / name) for name in PYTHON_HEADERS],
    define_macros=[("Py_LIMITED_API", "0x030B0000")] if HAS_STABLE_ABI else [],
    extra_compile_args=GLUE_FLAGS,
    libraries=["pthread"],
)
