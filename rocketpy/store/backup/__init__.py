"""`rocketpy store backup`: a copy of a store, also of one in use, that opens like a store after a loss of power.

copying.py   one file without its holes, or a tree of them; syncs
log.py       the log up to one position, with the complete files of the copy before
backup.py    what is copied in which order; the directory of copies
"""
