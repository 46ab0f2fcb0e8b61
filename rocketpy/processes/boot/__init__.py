"""From parsed arguments to running workers: configuration, store opening, the list of workers, memory before the fork.

serving                         from arguments to an exit status; logs
broker, namesrv, standalone, member     one server each; member is a broker with automatic failover
sockets, capacity               the ports, and how many connections there is room for
store_opening, half_messages, lost_end      the store, what is open in it, what a slave may have beyond its end
table_check                     saved tables that presume more than the log has are lowered
reopening                       a slave whose log has to be cut: the broker starts again in the same process
worker_list, memory             what is forked, and from how small a process
"""
