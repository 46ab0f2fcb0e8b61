"""A broker with automatic failover (haMode=automatic): a member of a group, see docs/automatic-failover.md.

requirement.py   the extra that must be installed
from_config.py   the settings of the member, and how it reaches etcd
"""
