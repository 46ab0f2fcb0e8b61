"""A member whose clocks are wrong: they run fast or slow, jump, or are set by somebody (tests/csrc/turned_clock.c)."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import attrs

MISSING = "clocks are turned by a library that needs a C compiler (Debian: apt install gcc)"
SOURCE = Path(__file__).parents[2] / "csrc" / "turned_clock.c"
SETTINGS = 1000
NUMBER = struct.Struct("=q")
SETTING = struct.Struct("=5q")  # since (ns), rate (ppm), skew, of CLOCK_BOOTTIME, of the wall clock (ns)
FILE_BYTES = NUMBER.size + SETTINGS * SETTING.size


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def built_library(directory: Path) -> Path:
    """Compile the library into `directory`."""
    library = directory / "turned_clock.so"
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler() or "cc", *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True, timeout=120)
    return library


@attrs.define(eq=False)
class TurnedClock:
    """The clocks of all processes that are started with `prefix` before their command."""

    library: Path
    file: Path
    _memory: mmap.mmap = attrs.field(init=False)
    _number: int = attrs.field(init=False, default=-1)
    _since_ns: int = attrs.field(init=False, default=0)
    _rate_ppm: int = attrs.field(init=False, default=0)
    _skew_ns: int = attrs.field(init=False, default=0)
    _boot_ns: int = attrs.field(init=False, default=0)
    _wall_ns: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self.file.write_bytes(bytes(FILE_BYTES))
        with self.file.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), FILE_BYTES)
        self._set()

    @property
    def prefix(self) -> list[str]:
        return ["env", f"LD_PRELOAD={self.library}", f"ROCKETPY_CLOCK_FILE={self.file}"]

    @property
    def wall_s(self) -> float:
        """By how much the wall clock was moved alone."""
        return self._wall_ns / 1e9

    def run_at(self, rate: float) -> None:
        """From now on all clocks run `rate` times as fast as the kernel's."""
        self._catch_up()
        self._rate_ppm = round((rate - 1) * 1e6)
        self._set()

    def step(self, *, all_s: float = 0.0, boot_s: float = 0.0, wall_s: float = 0.0) -> None:
        """Move all clocks, CLOCK_BOOTTIME alone, or the wall clock alone."""
        self._catch_up()
        self._skew_ns += round(all_s * 1e9)
        self._boot_ns += round(boot_s * 1e9)
        self._wall_ns += round(wall_s * 1e9)
        self._set()

    def _catch_up(self) -> None:
        """Turn what was gained so far into skew."""
        now_ns = time.monotonic_ns()
        self._skew_ns += (now_ns - self._since_ns) * self._rate_ppm // 1_000_000
        self._since_ns = now_ns

    def _set(self) -> None:
        """A setting first, then its number: readers see all of it or nothing."""
        self._number += 1
        values = (self._since_ns, self._rate_ppm, self._skew_ns, self._boot_ns, self._wall_ns)
        SETTING.pack_into(self._memory, NUMBER.size + self._number * SETTING.size, *values)
        NUMBER.pack_into(self._memory, 0, self._number)

    def close(self) -> None:
        self._memory.close()
        os.unlink(self.file)
