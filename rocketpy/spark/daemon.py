"""PySpark's daemon, which forks the Python workers of a JVM, with broken pipes hidden from the first task on.

With Spark's own daemon a worker whose task ends before any of our code has run prints the traceback of a broken pipe.
Only sessions on one machine use this module (`session` in session.py): a cluster would have to import it on each node
for every Python task, and a node without rocketpy would fail other programs' tasks too.

Short: Spark starts this module by its name.
"""

from __future__ import annotations

from pyspark.daemon import manager

from .worker import hide_broken_pipes

if __name__ == "__main__":
    hide_broken_pipes()
    manager()
