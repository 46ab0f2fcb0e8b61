"""Admin: the requests of operators to name servers and brokers, as awaitable methods.

    async with Admin(name_servers="127.0.0.1:9876") as admin:
        for queue, offsets in (await admin.topic_stats("OrderTopic")).items(): ...

Where Java asks one broker at random, this asks all and merges (`consumer_connection`, `who_consumes`).
Source: RocketMQ 4.9 `DefaultMQAdminExtImpl`.
"""

from __future__ import annotations

from .group_requests import GroupRequests
from .server_requests import ServerRequests


class Admin(GroupRequests, ServerRequests):
    """An operator's client. Brokers never see it in a group: it sends no heartbeats.

    Args:
        name_servers: `host:port;host:port`; the environment's NAMESRV_ADDR when left out.
        timeout: seconds for ordinary requests.
    """
