"""Rebuilds the consume queues and the index of a store from its log, with many processes or machines at a time.

A broker does the same when it starts without these files, record by record (csrc/store/dispatch/dispatch.c); this is
for logs that one core takes too long for. The log is read once:

1. collecting.py: a worker walks a piece of the log and leaves its units, queue by queue, and its keys in two files of
   the directory `spool`. C makes both with the functions that dispatch uses (csrc/store/recovery/rebuild.h).
2. planning.py: this process joins what the pieces say of each queue, by the rules of dispatch, and decides which units
   are in which file, and which keys.
3. writing.py: workers put the files together from the spool.

The store is only read, until publishing.py swaps the new files for the old ones under the store's lock.
"""
