"""The broker's slow path: everything that needs a decision. Plain Python in one trio process, the manager.

`broker.BrokerController` is what processes/workers/manager.py runs: `load`, `run`, `stop`, `processors`, and the
SlowPath methods (remoting/fast_path.py) for requests that the fast path cannot serve.

    managers/     tables, one owner each, with their files: topics, groups, offsets, clients, locks, statistics
    processors/   one file per request family; a new code is one method and one line in its family's table
    slow_send, slow_pull     requests of the slow path, checked in the reference's order; pending_sends, passed_sends,
                             filter_compiler, timer_changes, replies, remarks and property_edits belong to them
    schedule, delay          delayed delivery; delay_progress: how far it is; earlier_deliveries: what was delivered
                             since that was saved; last_delivery: of a slave that was promoted without progress
    transactions             checks of open transactions; transaction_questions asks producers, transaction_progress
                             says how far they have ended, transaction_renewal keeps old ones from holding others
    outer_api                registration with the name servers (registration), and the address of the master;
                             master_route: a master sees to it that it is in the routes
    slave_synchronize        a slave's copies of its master's tables; table_followers: which slaves have them;
                             master_duties: what only a master does
    services                 what processors share; current_settings, clock and store_api are parts of it
    queries, runtime_info    what operators read; backlog, slow_readers and water_marks watch and log
    journal, manager_memory, kept_tables, unfinished    what outlives a kill of the manager
    json_file, lock_file     files of tables, and of the locks of queues
    topics_of_log            topics that messages of the log name and the table lacks; position_file: where to look
    log_marks                the log position that a saved or copied table presumes: nothing runs ahead of the log
    process_pauses           pauses of this process, which are no silence of clients

A change of a table is sent to the send and pull workers (managers/fast_path_tables.py) before the reply that
acknowledges it.
"""
