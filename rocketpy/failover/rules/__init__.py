"""Automatic failover without I/O: who is master of a broker group, who may become it, what may be acknowledged.

etcd does the consensus; this package holds the rules (docs/run/failover.md). It has no sockets, clocks, files or trio:
what was read and when comes in as values, decisions go out as values. rocketpy/failover/etcd and the simulation of
tests/support/failover run the same code. A broker runs it with haMode=automatic.

    states.py      the state machine as a table
    records.py     the values of the keys in etcd
    epochs.py      the list of epochs, where two logs part, and where one is cut before it follows
    in_sync.py     who has to acknowledge; when the set shrinks and grows
    fences.py      until when a master may acknowledge
    conditions.py  what counts by how long it lasts: a fault, a peer's word of a newer epoch, an operator's request
    elections.py   who may campaign, and what an election writes
    settings.py    what the rules need to know of a member and its group, and how they differ
    requests.py    what a member is told, what it asks for, and what it tells its broker
    mastership.py  what a master keeps during its epoch
    member.py      one member: takes reports and answers, returns requests
    reference.py   prints docs/run/failover-reference.md
"""
