"""A slave's copies of the tables of its master, and duties that only a master has.

slave_synchronize    copies each table, together with the log position that it presumes
master_duties        duties that begin with a promotion and end with a demotion
"""
