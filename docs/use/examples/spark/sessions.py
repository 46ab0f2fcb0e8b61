"""Visits: the clicks of a user until there is none for half an hour.

python docs/use/examples/spark/sessions.py /tables
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
        .options(nameServer=name_server, topic="Visits", startingOffsets="earliest", columns="body")
        .load()
    )
    clicks = bodies.decode(messages, bodies.Json("user string, page string, at timestamp")).select("value.*")
    visit = sql.session_window("at", "30 minutes").alias("visit")
    visits = clicks.withWatermark("at", "10 minutes").groupBy("user", visit).agg(sql.count("*").alias("clicks"))
    return (
        visits.selectExpr("user", "visit.start AS began", "visit.end - INTERVAL 30 MINUTES AS ended", "clicks")
        .writeStream.format("parquet")
        .options(path=f"{directory}/visits", checkpointLocation=f"{directory}/visits-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", sys.argv[1]).awaitTermination()
