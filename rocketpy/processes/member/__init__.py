"""A broker with automatic failover (haMode=automatic): a member of a group, see docs/run/automatic-failover.md.

guardian.py          runs, replaces and stops the two children; ../boot/member.py says what they are made of
tree.py              what a process tree has from its guardian; it opens the store as the member that it is
identity.py          the incarnation of the store and the epochs of its log, when it is opened
coordinator_main.py  the coordinator's process; from_config.py: its settings
replaced_master.py   tells the last master that it was replaced, when it does not reach etcd
shared_broker.py     the broker as the coordinator sees it: reports, orders
certainty.py         if the broker certainly is the master still, before it registers as one
manager_role.py      the manager as broker 0 of the group, or as one that follows the master
cuts.py              when a log is to be cut
marks.py, names.py   what the processes share beside the member block; names that others need, too
parked.py            connections of clients between two process trees
shown.py             what the coordinator shows of itself, for metrics and operators
health.py            the reason why this broker cannot serve as master, if there is one
requirement.py       the extra that must be installed
"""
