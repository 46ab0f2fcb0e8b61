"""Metrics: snapshots of counters turned into Prometheus samples at scrape time. The only place that knows Prometheus.

Runs in the manager process of a broker (never in the supervisor, which must not have threads) and in the name server.
Nothing here counts anything: workers add to plain counters in shared memory, and a callable makes a `Snapshot` of them.

    from rocketpy.metrics.collector import BrokerCollector
    from rocketpy.metrics.endpoint import Endpoint

    endpoint = Endpoint(listener, BrokerCollector(take_snapshot))
    ...
    endpoint.close()

The collector and the endpoint are imported where they are used, and prometheus_client (families.py) with the first
request that is no usual scrape: memory that the other processes of a broker do without.

A metric is one row; docs/run/metrics.md is generated from the rows (`python -m rocketpy.metrics.reference`).

    metric, counters, table, replication, exporter, rocketmq5, streams      the rows; streams: of queries in Spark
    snapshot, process_memory                                                what they are read from
    collector, exposition, families, address, scrape, endpoint, reference   how they are shown
"""
