"""Worker blocks, rings and slots as the core's tests make and remove them; a broker never removes one."""

import os
from typing import Any

from rocketpy.native.core import ffi, lib, shared

PAGE = 4096  # a ring's positions; its data is mapped twice


def worker_block(index: int) -> Any:
    worker = shared("rp_worker", "a test")
    worker.index = index
    worker.doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    return worker


def suspension_slots(capacity: int) -> Any:
    slots = shared("rp_suspension_slots", "a test", capacity * ffi.sizeof("rp_suspension_slot"))
    slots.capacity = capacity
    return slots


def remove_worker(worker: Any) -> None:
    os.close(worker.doorbell)
    lib.munmap(worker, ffi.sizeof("rp_worker"))


def remove_ring(ring: Any) -> None:
    lib.munmap(ring, PAGE + 2 * lib.rp_ring_capacity(ring))


def remove_slots(slots: Any) -> None:
    lib.munmap(slots, ffi.sizeof("rp_suspension_slots") + slots.capacity * ffi.sizeof("rp_suspension_slot"))


def remove_half_states(states: Any) -> None:
    lib.munmap(states, ffi.sizeof("rp_half_states"))
