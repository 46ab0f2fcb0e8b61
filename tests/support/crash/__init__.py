"""Crashes at named points: what the store's files may be after a death or a power failure at that instant, and whether
the store that opens from them is what it must be.

    core     builds csrc/ once more, with its crash points calling back and its syncs told; takes the product's place
    disk     the page cache (a real directory) and beside it what the disk is bound to hold
    model    what was put; validates a recovered store
    life     seeded operations on one store, crashed at chosen points
    points   every name there is
    run      many lives, from the command line: `python -m tests.support.crash.run --seed 7 --point 123`
    seeded   lives of those below, and their command line
    slave          the log of a slave, with the send worker
    transactions   half messages and their ends, with the send worker
    timers         timers, with the send worker and the timer thread
    tables         delay progress and committed offsets, with their files
    cut_slave      a slave that copies tables while its log stream is cut, with its master
    broker         log, queues and tables of a broker in one process, for cut_slave

Runs in a process of its own, as the product's core is loaded in the one of the tests.
"""
