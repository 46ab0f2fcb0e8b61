"""Replication: a master's log is copied to its slaves. Runs in the replicator, a worker of its own.

    slave_table.py          which slaves are connected and how far they are, in shared memory   (all workers)
    master.py               accepts slaves and runs the C loop that sends them the log          (replicator of a master)
    slave.py                follows the master, one connection after the other                  (replicator of a slave)
    slave_states.py         its states and events, as a table
    guide.py                which master a slave follows: the named one; with automatic failover that is follower.py
    protocols.py            how a slave opens the stream of a master: of the reference, of rocketpy, with failover
    connection.py           connections of a slave to its master, plain or by TLS
    master_log.py           what a slave asks its master first
    stream.py               one connection that brings the log
    truncation.py           finds where a log that has diverged is to be cut, and asks for it (haTruncateDiverged)
    follower.py             what automatic failover adds to a slave
    errors.py               why a slave does not follow its master, and the reasons why it does not fit
    epoch_file.py           which master wrote which bytes, with automatic failover

Before the first byte of the log, brokers of rocketpy exchange the messages of a handshake:

    handshake_messages.py   HELLO, WELCOME and REFUSE as values; frames.py, secret.py
    versions.py             the versions of replication that a broker speaks, and the one that a pair uses
    handshake_rules.py      the decisions of both sides, without I/O
    member_handshake_rules.py   those with automatic failover, by the epochs of both logs
    master_handshakes.py    the master's side: connections that do not replicate yet, and their bounds
    slave_handshake.py      the slave's side, on a socket
    reference_start.py      a slave of a master of the reference, which has no handshake: it compares the logs itself

The bytes are in csrc/replication/frames.h and docs/understand/replication-protocol.md. A master without slaves has no
replicator: the supervisor starts it when the first connection arrives on the HA port. A slave has one from the start.
"""
