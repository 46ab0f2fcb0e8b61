"""A broker with automatic failover (haMode=automatic): a member of a group, see docs/run/automatic-failover.md.

guardian.py          runs, replaces and stops the two children; ../boot/member.py says what they are made of
tree.py              what a process tree has from its guardian; it opens the store as the member that it is
identity.py          the incarnation of the store and the epochs of its log, when it is opened
coordinator_main.py  the coordinator's process, and its settings
replaced_master.py   tells the last master that it was replaced, when it does not reach etcd
shared_broker.py     the broker as the coordinator sees it: reports, orders
certainty.py         if the broker certainly is the master still, before it registers as one
manager_role.py      the manager as broker 0 of the group, or as one that follows the master
marks.py             what the processes share beside the member block, and names that others need, too
shown.py             what the coordinator shows of itself, for metrics and operators
health.py            the reason why this broker cannot serve as master, if there is one
"""

from __future__ import annotations

from rocketpy.errors import ConfigError


def require_client() -> None:
    """Check that the client for etcd is installed. Raises: ConfigError: it is not."""
    import importlib.util  # every broker loads this package

    if importlib.util.find_spec("httpcore") is None:
        raise ConfigError(
            "automatic needs the client for etcd, which is not installed: pip install 'rocketpy-mq[failover]'",
            key="haMode",
        )
