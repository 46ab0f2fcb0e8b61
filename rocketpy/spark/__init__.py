"""rocketpy on Spark: topics and stores as DataFrames and streams, through PySpark's data source API. No JVM code.

    import rocketpy.spark
    spark = rocketpy.spark.session()                # or any SparkSession, after rocketpy.spark.register(spark)
    spark.read.format("rocketmq_store").load("/var/lib/rocketpy/store").groupBy("topic").count().show()

    rocketmq         topics of running brokers: batch and stream, to read and to write
    rocketmq_store   the CommitLog of a store directory, without a broker

Needs the extra, pip install "rocketpy-mq[spark]", and Java 17. The broker never imports this package. From the bottom
up; `topic` modules are of the first source, `store` modules of the second:

    session, worker, daemon         sessions with both sources; what each Python process of Spark does once
    columns, scan                   what a query gets: columns, and which records
    options, connection, decoding   how options are declared; those of brokers, of rows
    topic_options, store_options    the options of each source
    table_options                   those of a catalog table, which its schema keeps
    decoder, native_rows            from images of records to Arrow, by csrc/arrow
    cluster, offsets, ranges, planning              topics: which offsets a query or a micro-batch reads
    slices, direct_pulls, pulls, stored_queue         topics: how a task reads them
    first_messages, data_lost                       topics: which ones were made again, and what is missing
    topic_source, stream, group_progress            topics: what Spark asks of a source; progress for tools
    lag, stream_metrics             how far streams are behind, for Prometheus
    advice                          options that would save a query work
    bodies/                         columns from bodies in JSON, Avro and Protobuf
    segments, consume_queues        stores: the log in pieces, and where it ends
    store_source, store_stream      stores: what Spark asks of a source
    sink, sending, outgoing         rows to messages; the options of the sink
    jobs/                           `rocketpy pipeline`
    shims/                          modules by whose names PySpark finds the sources
"""

from __future__ import annotations

from .advice import advise, explain
from .session import read, reason_of, register, session

__all__ = ["advise", "explain", "read", "reason_of", "register", "session"]
