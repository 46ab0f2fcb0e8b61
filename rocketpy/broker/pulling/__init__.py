"""Pulls that need a decision, and the lag of consumer groups.

slow_pull        a pull that the pull worker left to the manager
backlog          the backlog of each group and topic, for metrics and the log; switches off groups that are far behind
"""
