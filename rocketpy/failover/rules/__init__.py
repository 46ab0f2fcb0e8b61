"""Automatic failover without I/O: who is master of a broker group, who may become it, what may be acknowledged.

etcd does the consensus; this package holds the rules (docs/run/failover.md). It has no sockets, clocks, files or trio:
what was read and when comes in as values, decisions go out as values. rocketpy/failover/etcd and the simulation of
tests/support/failover run the same code. A broker runs it with haMode=automatic.

    states.py      the state machine as a table
    records.py     the values of the keys in etcd
    epochs.py      the list of epochs, and where two logs part
    joining.py     where a log is cut before it follows
    in_sync.py     who has to acknowledge; when the set shrinks and grows
    fences.py      until when a master may acknowledge
    hint.py        what a peer says of a newer epoch
    fault.py       how long a member could not serve as master, and who could
    elections.py   who may campaign, and what an election writes
    settings.py    what the rules need to know of a member and its group
    requests.py    what a member is told, and what it asks for
    mastership.py  what a master keeps during its epoch
    next_master.py when a slave prepares to be the next master
    orders.py      what a member tells its broker
    member.py      one member: takes reports and answers, returns requests
    reference.py   prints docs/run/failover-reference.md
"""
