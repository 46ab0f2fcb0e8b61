"""Automatic failover (haMode=automatic): which member of a group of brokers is master, decided with etcd.

    rules/            the decisions, without I/O: elections, epochs, the in-sync set, leases, orders
    etcd/             the client for etcd, and the coordinator, which feeds the rules and writes what they decide
    member_block.py   shared memory: orders of the coordinator, reports of the broker

The processes of a member (guardian, coordinator, process tree) are in rocketpy/processes/member.
"""
