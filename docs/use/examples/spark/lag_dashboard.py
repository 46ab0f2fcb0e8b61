"""A query whose lag Prometheus scrapes from port 5560; deploy/grafana/spark.json is the dashboard.

python docs/use/examples/spark/lag_dashboard.py /tables
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import rocketpy.spark
from rocketpy.spark.stream_metrics import StreamMetrics


def run(
    spark: SparkSession, name_server: str, directory: str, port: int = 5560
) -> tuple[StreamMetrics, StreamingQuery]:
    metrics = StreamMetrics(spark, port=port, nameServer=name_server)
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic="Measured", startingOffsets="earliest", columns="min")
        .load()
    )
    query = (
        messages.writeStream.format("parquet")
        .queryName("measured")
        .options(path=f"{directory}/measured", checkpointLocation=f"{directory}/measured-checkpoint")
        .trigger(processingTime="1 second")
        .start()
    )
    return metrics, query


if __name__ == "__main__":
    run(rocketpy.spark.session("local[2,3]"), "127.0.0.1:9876", sys.argv[1])[1].awaitTermination()
