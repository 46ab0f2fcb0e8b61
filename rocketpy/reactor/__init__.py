"""The worker processes, the rings between them, and the way of a request through them.

    supervisor.py        forks, watches, replaces and stops the workers    (the supervisor process)
    acceptor.py          listening sockets -> selectors, by handoff.py     (acceptor)
    selector.py          sockets <-> rings: csrc/workers/selector.c        (selector-0 ...)
    codec.py             frames -> requests: csrc/workers/codec.c          (codec-0 ...)
    request_server.py    requests -> Processors in pools of trio tasks     (manager, query-0 ...)
    topology.py          all blocks and rings, created before the first fork
    pools.py             the table: request code -> pool, its bounds and processes; pool_queue.py what waits
    worker_messages.py   what crosses the rings (csrc/ipc/worker_messages.h) as values;
                         outbox.py, channel.py, ring_fast_path.py send it

This package knows no broker. The Processors (remoting.abc) and the SlowPath (remoting.fast_path) that startup passes in
give requests their meaning. Lifecycle: Topology.create -> WorkerSpecs -> Supervisor.run -> fork -> WorkerSpec.main in
each child.
"""
