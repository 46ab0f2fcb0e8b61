"""Sends that need a decision: checked in the reference's order, kept during a role change, or passed on to the master.

slow_send        a send that the send worker left to the manager
pending_sends    sends that wait for a role change to end
passed_sends     sends that a former master passes on to its successor
"""
