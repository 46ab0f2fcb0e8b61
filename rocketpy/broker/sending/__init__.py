"""Sends that need a decision, checked in the reference's order, and sends that a slave passes on to the master.

slow_send        a send that the send worker left to the manager
pending_sends    sends of the slow path that are not answered yet; each is completed exactly once
passed_on_sends  a slave passes sends on to the master of its group, and the master's answers back
"""
