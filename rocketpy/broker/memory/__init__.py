"""Memory that outlives a kill of the manager.

journal           changes of tables since their files were saved
lock_file         the locks of queues
manager_memory    both, with the number of the manager that may write
"""
