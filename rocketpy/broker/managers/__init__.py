"""The broker's tables: plain values in memory, one owner each, saved as the reference's JSON files.

topic_config, subscription_group, consumer_offset       topics, groups, committed offsets, each with its file
topics_position                         up to which log position the table of topics knows all of them
consumer, producer, client_channel      the clients that are online; client_journal keeps them for the next manager
repeated_heartbeats                     heartbeats that change only the times of a client
subscription_views, notify              whether a group's members subscribe alike; telling them of changes
consumer_filter, filter_compiler        SQL92 subscriptions and their filter bits; their programs
rebalance_lock                          locks of queues that are consumed in order
broker_stats, stats_item                figures of the last minute, hour and day
table_followers                         slaves that have copied the newest version of a table
fast_path_tables                        what of these tables the send and pull workers have
config_file                             when a table is saved, how it is encoded, copies with changes
"""
