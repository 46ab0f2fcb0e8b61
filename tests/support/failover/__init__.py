"""A simulated broker group: members of rocketpy/failover on a model of etcd, of the network, of clocks and of disks.

etcd_model.py   keys, leases, transactions
node.py         a broker: its store, its clock, its stream, and the Member that decides
world.py        time and messages; what gets lost
faults.py       what happens to a group, by a seed
checker.py      what must hold whatever happens
histories.py    one history by its seed; `python -m tests.support.failover.histories` runs many
"""
