"""Replication: a master's log is copied to its slaves. Runs in the replicator, a worker of its own.

    slave_table.py     which slaves are connected and how far they are, in shared memory   (all workers)
    master.py          accepts slaves and runs the C loop that sends them the log          (replicator of a master)
    handshakes.py      connections that do not replicate yet: who may begin, and for how long
    slave.py           follows the master, one connection after the other                  (replicator of a slave)
    slave_states.py    its states and events, as a table
    guide.py           which master a slave follows: the named one; with automatic failover that is follower.py
    protocols.py       how a slave opens the stream of a master: of the reference, of rocketpy, with automatic failover
    connection.py      connections of a slave to its master, plain or by TLS
    master_log.py      what a slave asks its master first
    start.py           where a slave's stream begins; the comparison of the ends of both logs
    stream.py          one connection that brings the log
    introduction.py    what brokers of rocketpy say to each other before the first byte of the log; frames.py, secret.py
    versions.py        the versions of it that a broker speaks, and the one that a pair uses
    handshake.py       the decisions of both sides about that
    greeting.py        a slave's side of it, on a socket
    truncation.py      finds where a log that has diverged is to be cut, and asks for it (haTruncateDiverged)
    follower.py, membership.py  what automatic failover adds on both sides
    errors.py          why a slave does not follow its master, and the reasons why it does not fit
    epoch_file.py      which master wrote which bytes, with automatic failover

The bytes are in csrc/replication/frames.h and docs/understand/replication-protocol.md. A master without slaves has no
replicator: the supervisor starts it when the first connection arrives on the HA port. A slave has one from the start.
"""
