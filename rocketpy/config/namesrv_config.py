"""NamesrvConfig: the name server's own settings. Keys and defaults are the reference's (4.9)."""

from __future__ import annotations

import attrs

from .setting import Effect, setting

_CLUSTER_TEST = "cluster test mode is not built"


@attrs.frozen(kw_only=True)
class NamesrvConfig:
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
