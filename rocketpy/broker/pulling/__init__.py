"""Pulls that need a decision, and who falls behind.

slow_pull        a pull that the pull worker left to the manager
slow_readers     groups that are told to read from a slave, or that are switched off because they lag
backlog          lag of groups, for metrics
"""
