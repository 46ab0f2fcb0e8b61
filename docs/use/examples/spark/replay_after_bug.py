"""Replay after a bug: wrong messages between two times are repaired, and sent to a topic for the repaired service.

The key is kept, so the service recognises orders that it has corrected; `ORIGIN` names the message.

python docs/use/examples/spark/replay_after_bug.py 1764000000000 1764003600000
"""

import sys

from pyspark.sql import SparkSession

import rocketpy.spark
from rocketpy.spark import bodies


def run(spark: SparkSession, name_server: str, from_ms: int, to_ms: int) -> None:
    wrong = rocketpy.spark.read(
        spark,
        nameServer=name_server,
        topic="Invoices",
        columns="body,tags,keys,msgId",
        startingTimestamp=from_ms,
        startingOffsetsByTimestampStrategy="latest",  # a queue may have nothing so young
        endingTimestamp=to_ms,
    )
    invoices = bodies.decode(wrong, bodies.Json("order bigint, cents bigint"))
    repaired = bodies.encode(
        invoices.where("value.cents < 0"), bodies.Json(), "named_struct('order', value.order, 'cents', -value.cents)"
    )
    rows = repaired.selectExpr("body", "tags", "keys", "map('ORIGIN', msgId) AS properties")
    rows.write.format("rocketmq").mode("append").options(nameServer=name_server, topic="InvoicesAgain").save()


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", int(sys.argv[1]), int(sys.argv[2]))
