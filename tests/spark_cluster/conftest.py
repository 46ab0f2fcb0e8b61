"""Spark in several processes: run by `make test-spark-cluster`, not by CI.

Short: fixtures are those of tests/spark.
"""

from __future__ import annotations

from tests.spark.conftest import broker, java

__all__ = ["broker", "java"]
