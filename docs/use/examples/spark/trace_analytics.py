"""The slowest consumers of the last hour, by the message trace that clients write (`trace=True`).

python docs/use/examples/spark/trace_analytics.py
"""

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import rocketpy.spark
from rocketpy.spark.jobs.trace import deliveries_of, join, sends_of, split_records

HOUR_MS = 3_600_000


def run(spark: SparkSession, name_server: str, directory: str = "") -> DataFrame:
    traces = rocketpy.spark.read(
        spark,
        nameServer=name_server,
        topic="RMQ_SYS_TRACE_TOPIC",
        columns="body",
        startingTimestamp=int(time.time() * 1000) - HOUR_MS,
        startingOffsetsByTimestampStrategy="latest",
    )
    records = split_records(traces)
    deliveries = join(sends_of(records), deliveries_of(records))
    waits = sql.percentile("wait_ms", 0.99).alias("wait_p99_ms")
    return deliveries.groupBy("topic", "group").agg(sql.count("*").alias("deliveries"), waits).orderBy(sql.desc(waits))


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876").show()
