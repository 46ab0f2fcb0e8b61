"""Delayed messages: from SCHEDULE_TOPIC_XXXX to their topics when they are due.

schedule             delivers each level in order
levels               delay levels, and how far each one is, in delayOffset.json
earlier_deliveries   deliveries since the saved progress, found in the log
last_delivery        the last delivery of each level, on a slave that was promoted without progress
timer_changes        timers that a client cancels or moves
"""
