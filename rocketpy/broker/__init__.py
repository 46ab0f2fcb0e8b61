"""The broker's slow path: everything that needs a decision. Plain Python in one trio process, the manager.

`broker.BrokerController` is the entry point for startup: `load`, `run`, `stop`, `processors`, and the SlowPath methods
(remoting/fast_path.py) for requests that the fast path cannot serve.

    managers/     tables, one owner each, with their files: topics, groups, offsets, clients, locks, statistics
    processors/   one file per request family; a new code is one method and one line in its family's table
    slow_send, slow_pull     requests of the slow path, checked in the reference's order
    schedule      delayed delivery        outer_api   registration with the name servers

A change of a table is sent to the send and pull workers (managers/fast_path_tables.py) before the reply that
acknowledges it.
"""
