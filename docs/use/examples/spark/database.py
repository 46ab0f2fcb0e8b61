"""Totals in a database, exactly once: the number of a batch is stored in the transaction of its rows, so a batch that
Spark repeats is recognised.

python docs/use/examples/spark/database.py /tables
"""

import sqlite3
import sys
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import rocketpy.spark
from rocketpy.spark import bodies

TABLES = """
CREATE TABLE IF NOT EXISTS totals (shop TEXT PRIMARY KEY, amount INTEGER);
CREATE TABLE IF NOT EXISTS batches (query TEXT, number INTEGER, PRIMARY KEY (query, number));
"""
ADD = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (shop) DO UPDATE SET amount = amount + excluded.amount"


def run(spark: SparkSession, name_server: str, directory: str) -> StreamingQuery:
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic="Sales", startingOffsets="earliest", columns="body")
        .options(maxOffsetsPerTrigger=1000)
        .load()
    )
    sales = bodies.decode(messages, bodies.Json("shop string, amount int")).where("bodyError IS NULL").select("value.*")

    def store(batch: DataFrame, number: int) -> None:
        rows = batch.groupBy("shop").sum("amount").collect()
        with closing(sqlite3.connect(f"{directory}/totals.db")) as database:
            database.executescript(TABLES)
            with database:  # one transaction
                added = database.execute("INSERT OR IGNORE INTO batches VALUES ('sales', ?)", (number,))
                if added.rowcount:
                    database.executemany(ADD, rows)

    return (
        sales.writeStream.foreachBatch(store)
        .option("checkpointLocation", f"{directory}/totals-checkpoint")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", sys.argv[1]).awaitTermination()
