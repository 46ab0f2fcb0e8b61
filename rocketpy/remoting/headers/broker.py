"""Brokers as a whole: configuration (26), access control (50 to 53), statistics (315, 317)."""

from __future__ import annotations

from ..schema import Header, header, wire


@header
class GetBrokerConfigResponseHeader(Header):
    version: str = wire("version")  # a DataVersion, as JSON text


@header
class GetAllTopicConfigResponseHeader(Header):
    """No field: it makes the answer carry `extFields:{}`, as Java's does."""


@header
class CreateAccessConfigRequestHeader(Header):
    access_key: str = wire("accessKey")
    secret_key: str | None = wire("secretKey", default=None)
    white_remote_address: str | None = wire("whiteRemoteAddress", default=None)
    admin: bool = wire("admin", default=False)
    default_topic_perm: str | None = wire("defaultTopicPerm", default=None)
    default_group_perm: str | None = wire("defaultGroupPerm", default=None)
    topic_perms: str | None = wire("topicPerms", default=None)  # "T1=PUB,T2=SUB"
    group_perms: str | None = wire("groupPerms", default=None)


@header
class DeleteAccessConfigRequestHeader(Header):
    access_key: str = wire("accessKey")


@header
class GetBrokerAclConfigResponseHeader(Header):
    version: str = wire("version", default="")
    all_acl_file_version: str | None = wire("allAclFileVersion", default=None)
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")


@header
class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    global_white_addrs: str = wire("globalWhiteAddrs", default="")  # comma list
    acl_file_full_path: str | None = wire("aclFileFullPath", default=None)


@header
class ViewBrokerStatsDataRequestHeader(Header):
    stats_name: str = wire("statsName")
    stats_key: str = wire("statsKey", default="")


@header
class GetConsumeStatsInBrokerHeader(Header):
    is_order: bool = wire("isOrder", default=False)
