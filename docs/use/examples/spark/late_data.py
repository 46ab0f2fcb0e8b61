"""Clicks for each minute of their own time. A minute is written once, when no click younger than ten minutes before the
newest can come; later ones are dropped.

python docs/use/examples/spark/late_data.py /tables
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

import rocketpy.spark
from rocketpy.spark import bodies


def run(spark: SparkSession, name_server: str, directory: str) -> StreamingQuery:
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic="Clicks", startingOffsets="earliest", columns="body")
        .load()
    )
    clicks = bodies.decode(messages, bodies.Json("page string, at timestamp")).select("value.*")
    counts = clicks.withWatermark("at", "10 minutes").groupBy("page", sql.window("at", "1 minute")).count()
    return (
        counts.selectExpr("page", "window.start AS minute", "count")
        .writeStream.format("parquet")
        .options(path=f"{directory}/clicks", checkpointLocation=f"{directory}/clicks-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", sys.argv[1]).awaitTermination()
