"""The load driver: C in load.c and wire.c, built by build_driver.py into `_driver` beside this file."""
