"""Triage of a group's dead letters: unreadable ones stay in a table, the others are sent to their topic again.

python docs/use/examples/spark/dead_letters.py /tables
"""

import sys

from pyspark.sql import DataFrame, SparkSession

import rocketpy.spark
from rocketpy.spark import bodies


def run(spark: SparkSession, name_server: str, directory: str) -> DataFrame:
    dead = rocketpy.spark.read(
        spark, nameServer=name_server, topic="%DLQ%billing", columns="body,tags,keys,properties,storeTimestamp"
    )
    letters = bodies.decode(dead, bodies.Json("order bigint, amount double"))
    bad = letters.where("bodyError IS NOT NULL")
    bad.write.mode("overwrite").parquet(f"{directory}/dead-letters")
    good = letters.where("bodyError IS NULL").selectExpr("properties['RETRY_TOPIC'] AS topic", "body", "tags", "keys")
    good.write.format("rocketmq").mode("append").option("nameServer", name_server).save()
    return bad.groupBy("bodyError").count()


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", sys.argv[1]).show()
