"""Tasks, time and threads for code that runs under trio and asyncio alike: clients, and the connections below them.

Owns: nothing. Each name does what its namesake in trio does, in whichever of the two runs the calling task.
Runs: in that task. Neither trio nor asyncio is imported before it is used: an import of trio takes 110 ms of CPU, one
of asyncio 45 ms (docs/adr/0060).
Lifecycle: no task outlives the nursery that it was started in, and no thread the call that waits for it.

The two differ in how tasks end. trio repeats a cancellation at every wait until the scope is left; asyncio raises it
once. Code above must work with both: a wait in a `finally` is `shielded`, with a time.

    backend        `running()`, the interfaces, and what every user calls: sleep, move_on_after, open_nursery, ...
    events         Event, Semaphore, Lock, Queue, made of the backend's future: the same on both
    portal         calls of other threads into a loop
    on_trio, on_asyncio    the two backends; trio_calls: what asyncio's loop has beside
"""

from .backend import (
    Backend,
    Future,
    Nursery,
    OpenNursery,
    Scope,
    StartedTask,
    Threads,
    Timer,
    call_at,
    call_soon,
    clock,
    in_thread,
    is_stray_cancellation,
    move_on_after,
    move_on_at,
    now_s,
    open_nursery,
    open_threads,
    run,
    run_with_portal,
    running,
    shielded,
    sleep,
    sleep_forever,
    sleep_until,
)
from .events import Event, Lock, Queue, Semaphore
from .portal import LoopEnded, Portal

__all__ = [
    "Backend",
    "Event",
    "Future",
    "Lock",
    "LoopEnded",
    "Nursery",
    "OpenNursery",
    "Portal",
    "Queue",
    "Scope",
    "Semaphore",
    "StartedTask",
    "Threads",
    "Timer",
    "call_at",
    "call_soon",
    "clock",
    "in_thread",
    "is_stray_cancellation",
    "move_on_after",
    "move_on_at",
    "now_s",
    "open_nursery",
    "open_threads",
    "run",
    "run_with_portal",
    "running",
    "shielded",
    "sleep",
    "sleep_forever",
    "sleep_until",
]
