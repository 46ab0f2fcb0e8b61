"""The broker's slow lane: everything that needs judgement, one trio process (the manager), plain Python.

`broker.BrokerController` puts it together and is what startup sees: `load`, `run`, `stop`, `processors`, and the
SlowLane methods (remoting/hot_lane.py) by which the hot lane hands over what it cannot decide.

    managers/     tables, one owner each, with their files: topics, groups, offsets, clients, locks, statistics
    processors/   one file per request family; a new code is one method and one line in its family's table
    slow_send, slow_pull     what the hot lane leaves to us, checked in the reference's order
    schedule      delayed delivery        outer_api   registration with the name servers

A change of a table is told to the hot processors (managers/hot_tables.py) before the reply that acknowledges it.
"""
