"""Changes of a database, as Debezium writes them, merged into a Delta table of the rows that are there now.

The library deltalake writes the table, so Spark needs no jar. A batch that Spark repeats changes nothing: the table
keeps the number of its last batch. Changes of a key come in order, because they are in one queue (shardingKey).

pip install "rocketpy-mq[spark,delta]"; python docs/use/examples/spark/cdc_merge.py /tables
"""

import sys

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming import StreamingQuery

import rocketpy.spark
from rocketpy.spark import bodies

CHANGE = "op string, before struct<id: bigint>, after struct<id: bigint, name: string>"


def run(spark: SparkSession, name_server: str, directory: str) -> StreamingQuery:
    table = f"{directory}/customers"
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic="Customers", startingOffsets="earliest", columns="body,queueOffset")
        .load()
    )
    changes = bodies.decode(messages, bodies.Json(CHANGE)).selectExpr(
        "coalesce(value.after.id, value.before.id) AS id", "value.op", "value.after.name", "queueOffset"
    )

    def merge(batch: DataFrame, number: int) -> None:
        last = batch.groupBy("id").agg(sql.expr("max_by(struct(op, name), queueOffset) AS last"))
        rows = last.selectExpr("id", "last.op", "last.name").toArrow()
        if not DeltaTable.is_deltatable(table):
            write_deltalake(table, rows.drop_columns("op").slice(0, 0))
        delta = DeltaTable(table)
        done = delta.transaction_version("merge")
        if done is not None and done >= number:
            return
        (
            delta.merge(
                rows,
                "t.id = s.id",
                source_alias="s",
                target_alias="t",
                commit_properties=CommitProperties(app_transactions=[Transaction("merge", number)]),
            )
            .when_matched_delete("s.op = 'd'")
            .when_matched_update({"name": "s.name"})
            .when_not_matched_insert({"id": "s.id", "name": "s.name"}, "s.op != 'd'")
            .execute()
        )

    return (
        changes.writeStream.foreachBatch(merge)
        .option("checkpointLocation", f"{directory}/customers-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", sys.argv[1]).awaitTermination()
