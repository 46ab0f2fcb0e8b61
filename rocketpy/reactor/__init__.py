"""The worker processes, the rings between them, and the way of a request through them.

    supervisor.py        forks, watches, replaces and stops the workers    (the supervisor process)
    acceptor.py          listening sockets -> selectors, by handoff.py     (acceptor)
    selector.py          sockets <-> rings: csrc/workers/selector/selector.c        (selector-0 ...)
    tls_worker.py        clients that speak TLS <-> selectors, slaves <-> replicator; tls_handshakes.py (tls-0 ...)
    codec.py             frames -> requests: csrc/workers/codec/codec.c          (codec-0 ...)
    request_server.py    requests -> Processors in pools of trio tasks     (manager, query-0 ...)
    connections.py       the connections of these requests, until their end
    handlers.py          the parts of these workers that handle requests and ring messages
    topology.py          all blocks and rings (ring.py), created before the first fork;
                         connections of selectors that died
    worker_spec.py       what a worker inherits; process.py what it does first
    pools.py             the table: request code -> pool, its bounds and processes; pool_queue.py what waits
    detached.py          requests that have left their pool; preparations.py those that will have another turn in it;
                         crashed_request.py those that killed a worker; watched_request.py those that are logged
    worker_messages.py   what crosses the rings (csrc/ipc/worker_messages.h) as values
    outbox.py            what waits for room in a ring; channel.py answers a connection through one;
                         unasked.py counts responses to no request
    master_link.py       shared memory that joins the workers of a slave

This package knows no broker. The Processors (remoting.abc) and the SlowPath (remoting.fast_path) that
rocketpy/processes passes in give requests their meaning. Lifecycle: Topology.create -> WorkerSpecs -> Supervisor.run ->
fork -> WorkerSpec.main in each child.
"""
