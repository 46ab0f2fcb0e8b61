"""Reads of the store for the manager: single messages, units, pulls, times."""
