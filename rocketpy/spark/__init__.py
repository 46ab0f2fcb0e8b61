"""rocketpy on Spark: topics and stores as DataFrames and streams, through PySpark's data source API. No JVM code.

    import rocketpy.spark
    spark = rocketpy.spark.session()                # or any SparkSession, after rocketpy.spark.register(spark)
    spark.read.format("rocketmq_store").load("/var/lib/rocketmq/store").groupBy("topic").count().show()

    rocketmq         topics of running brokers: batch and stream, to read and to write
    rocketmq_store   the CommitLog of a store directory, without a broker

Needs the extra, pip install "rocketpy-mq[spark]", and Java 17. The broker never imports this package. From the bottom
up: columns and selection say what a query gets; decoder makes Arrow of records, by native_rows; options
reads what the user asked; then there is one module for each thing that Spark asks of a source.
"""

from __future__ import annotations

from .session import read, register, session

__all__ = ["read", "register", "session"]
