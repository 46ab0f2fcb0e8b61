"""The process skin: workers, the rings between them, and the road of a request through them.

    supervisor.py    forks, watches, replaces and stops the workers            (the supervisor process)
    acceptor.py      listening sockets -> selectors, by handoff.py             (acceptor)
    selector.py      sockets <-> rings: csrc/selector.c                        (selector-0 ...)
    codec.py         frames -> requests: csrc/codec.c                          (codec-0 ...)
    processor.py     requests -> Processors in pools of trio tasks             (manager)
    topology.py      who writes to whom; made before the first fork
    dispatch.py      request code -> pool -> process
    stage.py         records of csrc/stage.h as values; outbox.py, channel.py, hot_lane.py: their way out

Knows no broker: what a request means is said by the Processors (remoting.abc) and the SlowLane (remoting.hot_lane) that
startup hands in. Lifecycle: Topology.create -> WorkerSpecs -> Supervisor.run -> fork -> WorkerSpec.main in each child.
"""
