"""PySpark's daemon, which forks the Python workers of a JVM, for sessions on one machine.

Short: Spark starts this module by its name. Without it, a worker whose task ends before it has run code of ours would
print the traceback of a broken pipe.
"""

from __future__ import annotations

from pyspark.daemon import manager

from .worker import hide_broken_pipes

if __name__ == "__main__":
    hide_broken_pipes()
    manager()
