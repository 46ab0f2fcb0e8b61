"""The benchmarks of `rocketpy bench`: scenario files, the load that they describe, results, and their comparison.

Owns: the load driver in C, which bench/ uses as well. Runs in the process of the command, and starts brokers of its
own if it is given no name server. Needs the extra `bench`.

    scenario     scenario files: keys, sweeps, and the points that they make
    runner       all runs of all points
    native       a run through the C driver
    idle         clients that only send heartbeats
    idle_cost    their cost, for a broker that serves nothing else
    load         the driver as a Python object; driver/ has its C, encoding the requests that it sends
    cluster      the brokers that are measured, and topics for a run
    own_broker   a broker for a run
    cold         its store leaves memory, so that reads come from the disk
    soak         a long run: do memory, descriptors, processes and rate stay as they are?
    neighbours   NATS and Kafka: how they are started; jars fetches those of a broker in Java
    clients/     a run through the Python client of a system
    proc         CPU, memory, wake-ups and reads from disks of processes
    result       result files
    compare      what changed between two results beyond noise
    report       results as Markdown
    plots        results as pictures
"""
