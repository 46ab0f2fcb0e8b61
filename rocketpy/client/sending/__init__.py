"""Sends messages: choose a queue, send, and retry at another broker within the time budget.

Entry point: `SendLoop`. Rules (which queue, another attempt or not) are plain functions beside it.
"""
