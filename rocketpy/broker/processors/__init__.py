"""Processors of requests, one file per family. Each has a table from request code to method (table.py)."""
