"""State that outlives a kill of the manager.

journal           a table in memory that is mapped before the first fork: one record for each change
manager_memory    the three journals: clients, offsets, locks of queues
lock_file         the journal of locks as a file, so that locks outlive the broker as well
"""
