"""Jobs: work on whole stores that Spark divides among its workers; run by `rocketpy pipeline JOB`, or by spark-submit.

A job plans parts in the driver. A worker does a part by itself, files and all, and returns a short result; no rows go
through the JVM (docs/adr/0104). Without a session the parts run one after the other in this process.

    running, progress               runs parts, one run at a time, and shows how far they are
    inputs, report, plots           of jobs that analyse messages: where they read, what they found
    archive, archive_topics         a store, or topics of brokers, as Parquet; compact merges its small files
    archive_log, archive_files, archived            manifests and files of an archive
    table_archive                   an archive as a table, which a library writes: delta_archive, iceberg_archive
    replay/                         an archive back into topics
    audit, rebuild                  checks a store; makes its queues and index anew
    stats, committed, draining      what topics hold, how far groups are and how fast
    trace                           how long messages took, from the message trace
    dedup, dedup_stream, windows    messages without their copies; counts in windows of time
    queries, supervisor             the streaming queries of a file, started again when they fail
    side_output                     where a query puts bodies that cannot be decoded
    target                          the directory of a streaming job, and what its checkpoint says
    demo                            all of them on a million messages
"""
