"""The set-up of each Python process of Spark, and the versions that must be equal in all of them.

Short: readers, writers and jobs all import it, and jobs that run without Spark must not load PySpark.
"""

from __future__ import annotations

import functools
import gc
import sys

import attrs

import rocketpy
from rocketpy.errors import ConfigError

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@attrs.frozen
class Origin:
    """Versions in the process that made a plan."""

    rocketpy: str = rocketpy.__version__
    python: str = PYTHON

    def check(self) -> None:
        """Raises ConfigError if this process has others."""
        here = Origin()
        if here != self:
            raise ConfigError(
                f"the driver has rocketpy-mq {self.rocketpy} on Python {self.python}, this executor {here.rocketpy} on "
                f"Python {here.python}: install the same versions on every node, and set PYSPARK_PYTHON"
            )


@functools.cache
def prepare_worker() -> None:
    """Spark's daemon runs a full garbage collection after each task: 20 to 45 ms, mostly for modules that stay. What is
    loaded by the first task is taken out of it."""
    gc.collect()
    gc.freeze()
