"""ServerConfig and NamesrvConfig: the listening side of the wire, by Netty's keys (4.9), and the name server's own."""

from __future__ import annotations

import attrs

from rocketpy.values import Value

from .setting import Effect, setting


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ServerConfig(Value):
    """NettyServerConfig of the reference, and rocketmqHome. Also read from the name server's file."""

    rocketmq_home: str = setting(
        "",
        "rocketmqHome",
        "Directory whose conf/ has the files of accounts (aclEnable). Nothing else is read there.",
        effect=Effect.REFUSED,
        default_text="environment ROCKETMQ_HOME",
    )
    listen_port: int = setting(
        0,
        "listenPort",
        "Port for clients. A broker also takes listenPort - 2 (VIP port: everything but pulls), and keeps listenPort "
        "+ 1 for replication.",
        default_text="broker 10911, name server 9876",
        at_least=1,
        at_most=65_535,
    )
    bind_address: str = setting(
        "127.0.0.1",
        "bindAddress",
        "Address to listen on. Default: this machine only, since requests need no account by default. `0.0.0.0` "
        "(default of the reference) or `::`: every network of the host.",
    )
    server_worker_threads: int = setting(
        8,
        "serverWorkerThreads",
        "If given, sets codecWorkers.",
        default_text="codecWorkers",
    )
    server_selector_threads: int = setting(
        3,
        "serverSelectorThreads",
        "If given, sets selectorWorkers.",
        at_least=1,
        default_text="selectorWorkers",
    )
    server_channel_max_idle_time_seconds: int = setting(
        120,
        "serverChannelMaxIdleTimeSeconds",
        "A connection without traffic for this long is closed. Clients send a heartbeat every 30 s.",
        unit="s",
        at_least=1,
        c="rp_selector_config.idle_s",
    )
    server_socket_backlog: int = setting(
        1_024,
        "serverSocketBacklog",
        "Connections that may wait to be accepted.",
        unit="connections",
        at_least=1,
    )


_CLUSTER_TEST = "cluster test mode is not built"


@attrs.frozen(eq=False, repr=False, kw_only=True)
class NamesrvConfig(Value):
    """Frozen; a run-time update (code 318) makes a new one."""

    kv_config_path: str = setting(
        "",
        "kvConfigPath",
        "File of the key-value table, a name server's only state on disk.",
        effect=Effect.REFUSED,
        default_text="~/namesrv/kvConfig.json",
    )
    config_store_path: str = setting(
        "",
        "configStorePath",
        "File for changes by code 318: the one given with -c.",
        effect=Effect.REFUSED,
        default_text="-c file, else ~/namesrv/namesrv.properties",
    )
    acl_enable: bool = setting(
        False,
        "aclEnable",
        "Serve requests of accounts only, as a broker does.",
    )
    cluster_test: bool = setting(
        False,
        "clusterTest",
        "Ask another name server for unknown routes.",
        only_default=_CLUSTER_TEST,
    )
    order_message_enable: bool = setting(
        False,
        "orderMessageEnable",
        "Add a topic's order configuration (`mqadmin updateOrderConf`) to its route. Off: it has no effect on clients.",
        effect=Effect.AT_ONCE,
    )
    config_black_list: str = setting(
        "configBlackList;configStorePath;kvConfigPath",
        "configBlackList",
        "Keys, separated by `;`, that cannot change at run time; these and rocketmqHome never can.",
        effect=Effect.REFUSED,
    )
