"""Access control: accounts (50, 51), versions of their files (52), global white lists (53).

Short: a request family of its own.
Source: RocketMQ 4.9 `CreateAccessConfigRequestHeader`, `DeleteAccessConfigRequestHeader`,
`UpdateGlobalWhiteAddrsConfigRequestHeader`, `GetBrokerAclConfigResponseHeader`. Their mandatory fields may be missing:
the processor, not the header, refuses such a request.
"""

from __future__ import annotations

from ..schema import Header, header, wire


@header
class CreateAccessConfigRequestHeader(Header):
    """An account. Lists have commas; what is absent stays as it is, but for `admin`."""

    access_key: str | None = wire("accessKey", default=None)
    secret_key: str | None = wire("secretKey", default=None)
    white_remote_address: str | None = wire("whiteRemoteAddress", default=None)
    admin: bool = wire("admin", default=False)
    default_topic_perm: str | None = wire("defaultTopicPerm", default=None)
    default_group_perm: str | None = wire("defaultGroupPerm", default=None)
    topic_perms: str | None = wire("topicPerms", default=None)
    group_perms: str | None = wire("groupPerms", default=None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(access_key={self.access_key!r})"


@header
class DeleteAccessConfigRequestHeader(Header):
    access_key: str | None = wire("accessKey", default=None)


@header
class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    """`acl_file_full_path` is empty for the default file: mqadmin of the reference always sends the field."""

    global_white_addrs: str | None = wire("globalWhiteAddrs", default=None)
    acl_file_full_path: str | None = wire("aclFileFullPath", default=None)


@header
class GetBrokerAclConfigResponseHeader(Header):
    """The versions, as JSON texts: of the default file, and of all files by their path."""

    version: str = wire("version")
    all_acl_file_version: str | None = wire("allAclFileVersion", default=None)
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")
