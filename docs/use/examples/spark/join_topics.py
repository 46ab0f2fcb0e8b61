"""Orders with their payments, from two topics. An order without a payment within an hour is written without one.

python docs/use/examples/spark/join_topics.py /tables
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

import rocketpy.spark
from rocketpy.spark import bodies


def read(spark: SparkSession, name_server: str, topic: str, schema: str) -> DataFrame:
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=topic, startingOffsets="earliest", columns="body")
        .load()
    )
    return bodies.decode(messages, bodies.Json(schema)).select("value.*")


def run(spark: SparkSession, name_server: str, directory: str) -> StreamingQuery:
    orders = read(spark, name_server, "Orders", "order bigint, amount double, ordered timestamp")
    payments = read(spark, name_server, "Payments", "of bigint, paid timestamp")
    is_of = sql.expr("order = of AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR")
    joined = orders.withWatermark("ordered", "1 minute").join(
        payments.withWatermark("paid", "1 minute"), is_of, "left_outer"
    )
    return (
        joined.select("order", "amount", "ordered", "paid")
        .writeStream.format("parquet")
        .options(path=f"{directory}/orders", checkpointLocation=f"{directory}/orders-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", sys.argv[1]).awaitTermination()
