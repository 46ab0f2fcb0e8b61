"""Mutants that tests must find: each is put into a copy of the tree, one after the other.

packages.txt               one mutant in each package that guards data, and one in C
core_*.txt                 the compiled core: recovery, control block, transactions, replication; no tool makes
                           mutants of C here
tables.py                  reads these tables
__main__.py                `python -m tests.support.known_mutants`
"""
