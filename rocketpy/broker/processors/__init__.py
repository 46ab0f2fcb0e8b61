"""Answers to requests, one file per family; all are made of a table from request code to method (table.py)."""
