"""The broker's slow path: everything that needs a decision, one trio process (the manager), plain Python.

`broker.BrokerController` puts it together and is what startup sees: `load`, `run`, `stop`, `processors`, and the
SlowPath methods (remoting/fast_path.py) by which the fast path hands over what it cannot decide.

    managers/     tables, one owner each, with their files: topics, groups, offsets, clients, locks, statistics
    processors/   one file per request family; a new code is one method and one line in its family's table
    slow_send, slow_pull     what the fast path leaves to us, checked in the reference's order
    schedule      delayed delivery        outer_api   registration with the name servers

A change of a table is told to the send and pull processes (managers/fast_path_tables.py) before the reply that
acknowledges it.
"""
