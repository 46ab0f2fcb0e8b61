"""Pulls that need a decision, and the lag of consumer groups.

slow_pull        a pull that the pull worker left to the manager
slow_readers     switches off groups that read far behind the end of the log, if the configuration asks for it
backlog          the backlog of each group and topic: metrics, and a log line when it passes its limit
"""
