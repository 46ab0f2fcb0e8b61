"""The processes of a soak: what they said, and how much memory and how many files they have."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import attrs

from tests.support.preloaded import ROOT

PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE_S = 1.0
END_S = 60.0
GROWTH_MAX_MIB = 2.0  # between the medians of the second and the last quarter
FILES_GROWTH_MAX = 2
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""glibc keeps free pages of an arena for each thread: 2 to 3 MiB more in 20 minutes of faults, while Python's objects
took the same 4.7 MiB after each minute."""


@attrs.frozen
class Sample:
    at_s: float
    rss: int  # bytes
    files: int


@attrs.define(eq=False)
class Watched:
    """One program. `told`: kind of line to number of message to (place, seconds) of each time that it was said."""

    role: str
    errors: Path
    process: subprocess.Popen[str]
    told: dict[str, dict[int, list[tuple[str, float]]]] = attrs.field(factory=lambda: defaultdict(dict))
    samples: list[Sample] = attrs.field(factory=list)
    _reader: threading.Thread = attrs.field(init=False)

    @classmethod
    def start(cls, role: str, namesrv: str, backend: str, pause_s: float, directory: Path) -> Watched:
        words = [sys.executable, "-m", "tests.support.soak.client", role, namesrv, backend, str(pause_s)]
        errors = directory / f"{role}.log"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=ROOT,
                env=os.environ | ONE_ARENA,
            )
        return cls(role, errors, process)

    def __attrs_post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._sample, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, number, place, at_s = line.split()
            self.told[kind].setdefault(int(number), []).append((place, float(at_s)))

    def _sample(self) -> None:
        own = Path(f"/proc/{self.process.pid}")
        try:
            while True:
                rss = int((own / "statm").read_text().split()[1]) * PAGE
                if rss:  # 0: it has just ended
                    self.samples.append(Sample(time.monotonic(), rss, len(list((own / "fd").iterdir()))))
                time.sleep(SAMPLE_S)
        except (OSError, IndexError):  # it has ended
            return

    def wait_for(self, kind: str) -> None:
        """Until it has said a line of this kind."""
        deadline = time.monotonic() + END_S
        while not self.told[kind]:
            assert time.monotonic() < deadline and self.process.poll() is None, self.errors.read_text()[-3000:]
            time.sleep(SAMPLE_S / 10)

    @property
    def rss_mib(self) -> float:
        return self.samples[-1].rss / 2**20 if self.samples else 0.0

    def _quarter(self, number: int) -> list[Sample]:
        count = len(self.samples) // 4
        return self.samples[number * count : (number + 1) * count]

    @property
    def growth_mib(self) -> float:
        """Of the resident memory, from the second quarter, in which the program is warm, to the last one."""
        first, last = (statistics.median(one.rss for one in self._quarter(number)) for number in (1, 3))
        return (last - first) / 2**20

    @property
    def slope_kib(self) -> float:
        """KiB a minute of the resident memory, without the first quarter."""
        warm = self.samples[len(self.samples) // 4 :]
        line = statistics.linear_regression([one.at_s / 60 for one in warm], [one.rss / 1024 for one in warm])
        return line.slope

    @property
    def files(self) -> tuple[float, float]:
        """Median number of open files in the second and the last quarter."""
        first, last = (statistics.median(one.files for one in self._quarter(number)) for number in (1, 3))
        return first, last

    def is_steady(self) -> bool:
        first, last = self.files
        return self.growth_mib <= GROWTH_MAX_MIB and last - first <= FILES_GROWTH_MAX

    def end(self) -> None:
        """End its input, and read the rest.

        Raises:
            AssertionError: it has ended before, or with an error.
        """
        assert self.process.stdin is not None
        early = self.process.poll()
        self.process.stdin.close()
        status = self.process.wait(END_S)
        self._reader.join(END_S)
        text = self.errors.read_text(errors="replace")[-3000:]
        assert early is None and status == 0, f"the {self.role} ended with {status}:\n{text}"

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_S)
