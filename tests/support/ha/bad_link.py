"""A router's bad link: packets that come out of a tun device go in again late, in another order, or never.

What `tc netem` does, for kernels without it. The program of its own runs in the namespace of the router:
bad_link.py NAME DELAY_MS JITTER_MS LOSS SEED. It says `ready`, and ends when its input ends.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX = 65536
WAITING_MAX = 10_000  # packets; more are dropped, as a router does


def open_tun(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


def run(fd: int, delay_s: float, jitter_s: float, loss: float, choose: random.Random) -> None:
    """Until the input ends."""
    waiting: list[tuple[float, int, bytes]] = []
    number = itertools.count()
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select([fd, sys.stdin], [], [], wait_s)
        if sys.stdin in ready:
            return
        if fd in ready:
            packet = os.read(fd, PACKET_BYTES_MAX)
            if choose.random() >= loss and len(waiting) < WAITING_MAX:
                due_s = time.monotonic() + delay_s + choose.uniform(0.0, jitter_s)
                heapq.heappush(waiting, (due_s, next(number), packet))
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(fd, heapq.heappop(waiting)[2])


if __name__ == "__main__":
    name, delay_ms, jitter_ms, loss, seed = sys.argv[1:]
    tun = open_tun(name)
    print("ready", flush=True)
    run(tun, float(delay_ms) / 1000, float(jitter_ms) / 1000, float(loss), random.Random(seed))
