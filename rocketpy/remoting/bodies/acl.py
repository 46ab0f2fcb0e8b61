"""Access control: the accounts of a broker (54).

Short: one body, of a family of its own.
Source: RocketMQ 4.9.7 `GetBrokerClusterAclConfigResponseBody`, `PlainAccessConfig`.
"""

from __future__ import annotations

from .schema import Body, body, wire


@body
class PlainAccessConfig(Body):
    """An account as it is written in its file. A broker of rocketpy leaves the secret out."""

    access_key: str | None = wire("accessKey", default=None)
    admin: bool = wire("admin", default=False)
    default_group_perm: str | None = wire("defaultGroupPerm", default=None)
    default_topic_perm: str | None = wire("defaultTopicPerm", default=None)
    group_perms: list[str] | None = wire("groupPerms", default=None)
    secret_key: str | None = wire("secretKey", default=None)
    topic_perms: list[str] | None = wire("topicPerms", default=None)
    white_remote_address: str | None = wire("whiteRemoteAddress", default=None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(access_key={self.access_key!r})"


@body
class AclConfig(Body):
    """GET_BROKER_CLUSTER_ACL_CONFIG (54)."""

    global_white_addrs: list[str] = wire("globalWhiteAddrs", factory=list)
    plain_access_configs: list[PlainAccessConfig] = wire("plainAccessConfigs", factory=list)
