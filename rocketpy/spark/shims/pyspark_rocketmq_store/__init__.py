"""The format `rocketmq_store`, known to Spark without registration.

Spark imports every installed package whose name begins with pyspark_, in many processes, and takes its DefaultSource.
A package that fails to import hides all others, so this one imports little before a query uses the source.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource

from rocketpy.spark.worker import hide_broken_pipes

hide_broken_pipes()  # Spark keeps the process that has looked for sources, and closes its connection a minute later


class DefaultSource(DataSource):
    """Stands for `StoreSource` until a query makes one."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def __new__(cls, options: MutableMapping[str, str]) -> DataSource:
        from rocketpy.spark.session import check_pyspark

        check_pyspark()
        from rocketpy.spark.store_source import StoreSource

        return StoreSource(options)
