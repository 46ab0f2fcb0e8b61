"""From parsed arguments to running workers: configuration, store opening, the list of workers, memory before the fork.

serving                         from arguments to an exit status
broker, namesrv, standalone, member     one server each; member is a broker with automatic failover
sockets                         the ports
service_manager                 ports that systemd keeps, and what it is told
capacity                        how many connections there is room for, and selectors for them
store_opening                   the store: a slave's is cut before, and of a master's end a slave may have more
table_check                     saved tables that presume more than the log has are lowered
half_messages                   what is open in the store
worker_list                     what is forked
memory                          what makes a start short and processes small, as one list
"""
