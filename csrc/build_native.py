"""Build rocketpy.native._rocketpy, the compiled core, with cffi.

Public headers hold only types, enum constants and prototypes: their preprocessor lines are dropped and the rest is
handed to cffi, so that every declaration exists once. All C files of csrc/ are linked into one extension.

Run by setup.py (`pip install .`, `setup.py build_ext --inplace`), which compiles the C files (objects.py) and adds the
objects.
"""

from pathlib import Path

from cffi import FFI

CSRC = Path(__file__).resolve().parent
# What Python may call, in the order of what they use. Headers with inline code or for C alone are not named here.
HEADERS = [
    "base/status.h",
    "base/host.h",
    "base/crc32.h",
    "base/numbers.h",
    "base/floating.h",
    "store/record.h",
    "store/filter.h",
    "wire/codes.h",
    "wire/frame.h",
    "wire/header.h",
    "wire/reply.h",
    "wire/peer.h",
    "wire/proxy_header.h",
    "ipc/worker.h",
    "ipc/ring.h",
    "ipc/worker_counters.h",
    "ipc/worker_messages.h",
    "ipc/filter_messages.h",
    "ipc/transaction_messages.h",
    "ipc/queue_owner.h",
    "ipc/master_link.h",
    "ipc/member.h",
    "store/control_block.h",
    "store/broker_clock.h",
    "store/delivery_marks.h",
    "store/half_states.h",
    "store/half_recovery.h",
    "store/timer_marks.h",
    "store/timers.h",
    "store/timer_follow.h",
    "store/filter_marks.h",
    "store/commitlog.h",
    "store/log_view.h",
    "store/consume_queue.h",
    "store/consume_queue_ext.h",
    "store/flush.h",
    "store/dispatch.h",
    "store/mapped_file.h",
    "store/recovery.h",
    "store/index_file.h",
    "store/index_repair.h",
    "store/rebuild.h",
    "store/verify.h",
    "replication/frames.h",
    "replication/epochs.h",
    "replication/slave_table.h",
    "replication/confirm.h",
    "replication/master.h",
    "replication/slave_stream.h",
    "workers/store_loop.h",
    "ipc/process.h",
    "ipc/process_memory.h",
    "ipc/priority.h",
    "workers/selector.h",
    "workers/codec.h",
    "workers/send.h",
    "workers/pull.h",
    "arrow/rows.h",
    "arrow/columns.h",
]
# The glue that cffi generates runs once per call, and a call works through a batch: -O1 halves the time it takes to
# compile, a fifth of the build. Its warnings are not ours.
GLUE_FLAGS = ["-std=gnu11", "-O1", "-fvisibility=hidden", "-w"]


def declarations(header: str) -> str:
    """The header without its preprocessor lines."""
    return "".join(line for line in (CSRC / header).read_text().splitlines(True) if not line.lstrip().startswith("#"))


ffi = FFI()
for name in HEADERS:
    ffi.cdef(declarations(name))
ffi.set_source(
    "rocketpy.native._rocketpy",
    "".join(f'#include "{name}"\n' for name in HEADERS),
    include_dirs=[str(CSRC)],
    extra_compile_args=GLUE_FLAGS,
    libraries=["pthread"],
)
