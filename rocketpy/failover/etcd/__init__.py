"""The coordinator: connects the rules of rocketpy/failover with etcd and with the broker. Needs the extra "failover".

    gateway.py       etcd's JSON gateway: the calls that are needed, with bounded waits; the token of an account
    group_keys.py    the keys of a group of brokers: reads them as a View, writes transactions
    continuity.py    notices an etcd that was restored or replaced
    upkeep.py        alarms of etcd, its size and its history
    coordinator.py   the tasks: lease, reads, decisions; what they need of the broker: reports, and a place for orders
    operator.py      what mqadmin asks of a group: who is what, another master
    access.py        from a broker's settings to its access to etcd

It runs in a process of its own (processes/member): a slow request of an operator must not cost the lease.
"""
