"""Jobs: work on whole stores that Spark divides among its workers; run by `rocketpy pipeline JOB`, or by spark-submit.

A job plans parts in the driver. A worker does a part by itself, files and all, and returns a short result; no rows go
through the JVM (docs/adr/0137). Without a session the parts run one after the other in this process.
"""
