"""How a message is sent: choose a queue, send, and try elsewhere while the budget lasts.

Entry point: `SendLoop`. Rules (which queue, another attempt or not) are plain functions beside it.
"""
