"""Checks registrations before they are entered: legal names, and the limits brokersMax, topicsMax, topicRoutesMax and
topicBrokersMax.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from rocketpy.config import RocketpyConfig
from rocketpy.message.names import RETRY_LENGTH_MAX, text_fault
from rocketpy.remoting.bodies.route import MASTER_ID
from rocketpy.remoting.limits import Limit, require

from .registration import Registration
from .route_info import RouteInfoManager

TOPICS_PER_STEP = 500
CLUSTERS_MAX = 16  # clusters of one broker
FILTER_SERVERS_MAX = 64  # of one broker


class Admission:
    """Limits the entries of brokers, and of clients that pose as brokers."""

    def __init__(self, routes: RouteInfoManager, settings: Callable[[], RocketpyConfig]) -> None:
        self._routes = routes
        self._brokers = Limit("brokers", "brokersMax", lambda: settings().brokers_max)
        self._topics = Limit("topics", "topicsMax", lambda: settings().topics_max)
        self._routes_of_all = Limit(
            "topics of brokers, over all brokers", "topicRoutesMax", lambda: settings().topic_routes_max
        )
        self._brokers_of_one = Limit("brokers of one topic", "topicBrokersMax", lambda: settings().topic_brokers_max)

    @property
    def refused(self) -> int:
        """Number of registrations refused by a limit."""
        limits = self._brokers, self._topics, self._routes_of_all, self._brokers_of_one
        return sum(limit.refused for limit in limits)

    def checking(self, registration: Registration) -> Generator[None, None, None]:
        """Check a whole registration; other tasks may run where it yields. Topics may be named like clusters and hosts.

        Raises:
            RequestRefused: the registration is not allowed.
        """
        named = ("cluster name", registration.cluster), ("broker name", registration.broker_name)
        for what, text in (*named, ("broker address", registration.broker_addr)):
            require(text_fault(what, text))
        if registration.ha_server_addr:
            require(text_fault("replication address", registration.ha_server_addr))
        clusters = self._routes.clusters_of(registration.broker_name) | {registration.cluster}
        if len(clusters) > CLUSTERS_MAX:
            require(f"one broker of {len(clusters)} clusters, at most {CLUSTERS_MAX} are allowed")
        servers = registration.filter_servers or ()
        if len(servers) > FILTER_SERVERS_MAX:
            require(f"{len(servers)} filter servers, at most {FILTER_SERVERS_MAX} are allowed")
        for server in servers:
            require(text_fault("filter server", server))
        self._brokers.check(len(self._routes.live_brokers), int(not self._routes.has_broker(registration.broker_addr)))
        more = more_routes = 0
        is_master = registration.broker_id == MASTER_ID  # topics of a slave are ignored
        for number, topic in enumerate(registration.topics, 1):
            require(text_fault("topic", topic, RETRY_LENGTH_MAX))
            more += not self._routes.has_topic(topic)
            brokers = self._routes.brokers_of(topic)
            if is_master and registration.broker_name not in brokers:
                self._brokers_of_one.check(len(brokers))
                more_routes += 1
            if number % TOPICS_PER_STEP == 0:
                yield
        self._topics.check(self._routes.topic_count, more)
        self._routes_of_all.check(self._routes.route_count, more_routes)
