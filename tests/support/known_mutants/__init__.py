"""Mutants that tests must find: each is put into a copy of the tree, one after the other.

packages.txt               one mutant in each package that guards data, one in C, and those of a slave's tables
core_*.txt                 the compiled core: recovery, control block, transactions, replication; no tool makes
                           mutants of C here
tables.py                  reads these tables
__main__.py                `python -m tests.support.known_mutants`
"""
