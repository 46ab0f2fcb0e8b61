"""Replication: a master's log is copied to its slaves. Runs in the replicator, a worker of its own.

    slave_table.py     which slaves are connected and how far they are, in shared memory   (all workers)
    master.py          accepts slaves and runs the C loop that sends them the log          (replicator of a master)

The bytes are in csrc/replication/frames.h and docs/replication.md. A broker without slaves has no replicator: the
supervisor starts it when the first connection arrives on the HA port.
"""
