"""The broker's slow path: everything that needs a decision. Plain Python in one trio process, the manager.

`broker.BrokerController` is what processes/workers/manager.py runs: `load`, `run`, `stop`, `processors`, and the
SlowPath methods (remoting/fast_path.py) for requests that the fast path cannot serve.

    processors/     one file per request family; a new code is one method and one line in its family's table
    managers/       tables, one owner each, with their files: topics, groups, offsets, clients, locks, statistics
    sending/        sends that need a decision
    pulling/        pulls that need a decision; lag of groups
    delays/         delayed messages
    transactions/   half messages and check-backs
    registration/   the broker in the routes of name servers
    slaves/         copies of the master's tables; duties of a master
    fast_path/      the rings to the send, pull and store workers, and shared memory
    files/          files of tables; nothing in them runs ahead of the log
    memory/         memory that outlives a kill of the manager

    services                         values that all processors share; current_settings and store_api are in it
    clock                            the clocks, and pauses of this process, which do not count as silence of clients
    runtime_info                     the state of the broker for operators; log lines about pools in which requests wait
    replies                          responses to requests of the slow path, and texts of refusals
    property_edits                   changes of a message's properties
    topics_of_log                    after a kill: topics that only the log has, deletions that go on

A change of a table is sent to the send and pull workers (managers/fast_path_tables.py) before the reply that
acknowledges it.
"""
