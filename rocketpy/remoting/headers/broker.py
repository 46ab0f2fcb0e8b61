"""Brokers as a whole: configuration (26), statistics (315, 317), filters (30002)."""

from __future__ import annotations

from ..schema import Header, header, wire


@header
class GetBrokerConfigResponseHeader(Header):
    version: str = wire("version")  # a DataVersion, as JSON text


@header
class ViewBrokerStatsDataRequestHeader(Header):
    stats_name: str = wire("statsName")
    stats_key: str = wire("statsKey", default="")


@header
class GetConsumeStatsInBrokerHeader(Header):
    is_order: bool = wire("isOrder", default=False)


@header
class GetAllConsumerFilterHeader(Header):
    """Of request and response."""

    version: str = wire("version", default="")  # of the table: what the slave has, what the master has
