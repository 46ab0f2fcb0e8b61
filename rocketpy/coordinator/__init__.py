"""The coordinator: connects the rules of rocketpy/failover with etcd and with the broker. Needs the extra "failover".

    gateway.py      etcd's JSON gateway: the calls that are needed, with bounded waits
    group_keys.py   the keys of a group of brokers: reads them as a View, writes transactions
    continuity.py   notices an etcd that was restored or replaced
    replica.py      what the coordinator needs of the broker: reports, and a place for orders
    coordinator.py  the tasks: lease, reads, decisions

It runs in a process of its own (startup/member): a slow request of an operator must not cost the lease.
"""
