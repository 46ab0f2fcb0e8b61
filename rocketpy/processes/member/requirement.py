"""The requirement of failover beside the broker: the client for etcd, an extra of the distribution."""

from __future__ import annotations

import importlib.util

from rocketpy.errors import ConfigError


def require_client() -> None:
    """Check that the client for etcd is installed. Raises: ConfigError: it is not."""
    if importlib.util.find_spec("httpcore") is None:
        raise ConfigError(
            "automatic needs the client for etcd, which is not installed: pip install 'rocketpy-mq[failover]'",
            key="haMode",
        )
