"""A producer and a consumer of ours for minutes or hours under restarts, failovers and slow networks.

client.py     the programs: they print what was acknowledged and what was handled
watch.py      their processes: output, memory, open files
target.py     the servers, and the faults that happen to them
__main__.py   the run, its progress and its table: `make soak-client`
"""
