"""The processes of a server: what they are made of, in the order of a boot.

    boot/      from a configuration to running workers: the store is opened, rings and workers are listed, then forked
    workers/   the main function of each worker: send, pull, store, manager, query, replicator; those that only run a
               loop of C, and the TLS workers, have theirs in rocketpy/reactor
    member/    a broker with automatic failover: guardian, coordinator and a process tree of workers

The command lines that start them are in rocketpy/cli.
"""
