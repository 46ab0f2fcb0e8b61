"""Groups of real brokers with a real etcd, clients that remember what they were told, and faults.

network.py   namespaces, so that a member can be cut from any other place, one way or both
group.py     members, their etcd and name server as processes
clients.py   senders, and readers of every member
history.py   what was told to whom and when, and the promises that are checked against it
"""
