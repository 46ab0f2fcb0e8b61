"""The main functions of the broker's workers, and the snapshot for metrics.

inherited, garbage_collection, shared_counts                              what workers have in common
manager, request_server_main, send_and_pull, store, replicator, slave     the mains
scrapes, forked_copy, snapshot, traffic_rows                              what the manager answers to a scrape
"""
