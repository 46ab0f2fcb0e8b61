"""The objects that `--output json` prints, by command. Scripts depend on them: a name here never changes its meaning.

`|` separates kinds of rows, brackets mark names that may be missing, and `...` stands for names that the server gives.
Times are local as in the text, or milliseconds since 1970 where a name ends in `_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_MESSAGE = (
    "msg_id offset_msg_id topic broker_name queue_id queue_offset commit_log_offset tags keys properties flag "
    "reconsume_times born_timestamp_ms store_timestamp_ms born_host store_host sys_flag body_size"
)
_BODY = "[body] [body_base64]"
_CONSUMED = "consume_result remark spent_time_ms"
_FOUND = f"{_MESSAGE} body_path {_BODY} | consumer_group track_type exception_desc"
_MEMBER = "client_id client_addr language version"
_GROUP_OFFSETS = "broker_offset consumer_offset"
_MOVED = f"broker_name queue_id offset | broker_name queue_id {_GROUP_OFFSETS} timestamp_offset rollback_offset"
_CLEANED = "address success"
_CONFIG = "address ..."
_TRACE = "cost_times status"
_IN_SYNC_MEMBER = "member addr role epoch log_end lag_bytes in_sync lease_s"

JSON_ROWS: Mapping[str, str] = MappingProxyType(
    {
        "updateTopic": "address topic perm read_queue_nums write_queue_nums order",
        "deleteTopic": "topic cluster deleted",
        "updateTopicPerm": "address topic old_perm new_perm",
        "topicRoute": (
            "brokerDatas queueDatas filterServerTable ... "
            "| cluster_name broker_name broker_addrs read_queue write_queue perm"
        ),
        "topicStatus": "broker_name qid min_offset max_offset last_updated",
        "topicClusterList": "cluster",
        "topicList": "topic | cluster_name topic consumer_group",
        "updateOrderConf": "topic value",
        "allocateMQ": "result",
        "statsAll": "topic consumer_group accumulation in_tps out_tps in_msg24hour out_msg24hour",
        "queryMsgById": f"{_FOUND} | {_CONSUMED} | original_msg_id msg_id status",
        "queryMsgByKey": "message_id qid offset",
        "queryMsgByUniqueKey": f"{_FOUND} | {_CONSUMED}",
        "queryMsgByOffset": _FOUND,
        "printMsg": f"{_MESSAGE} {_BODY}",
        "printMsgByQueue": f"{_MESSAGE} {_BODY} | tag count",
        "consumeMessage": f"{_MESSAGE} {_BODY}",
        "queryCq": "min_index max_index | index phy_offset size tags_code",
        "queryMsgTraceById": (
            f"type producer_group client_host send_time {_TRACE} "
            f"| type consumer_group client_host consumer_time {_TRACE}"
        ),
        "sendMessage": "broker_name qid send_result msg_id",
        "sendMsgStatus": "rt_ms result",
        "checkMsgSendRT": "broker_name qid send_result rt | average_rt_ms",
        "clusterRT": "cluster_name broker_name rt success_count fail_count | time room cluster broker_name rt_ms",
        "updateSubGroup": "address group consume_enable retry_queue_nums retry_max_times",
        "deleteSubGroup": "group address | topic",
        "getConsumerConfig": "cluster broker_name groupName ...",
        "consumerConnection": (
            f"{_MEMBER} | topic sub_expression | consume_type message_model consume_from_where differing_subscriptions"
        ),
        "producerConnection": _MEMBER,
        "producer": "group client_id remote_ip language version",
        "consumerProgress": (
            f"group count version type model tps diff_total | topic broker_name qid {_GROUP_OFFSETS} [client_ip] diff "
            "last_time | consume_tps diff_total"
        ),
        "consumerStatus": (
            "index client_id version consumer_running_info_file | same_subscriptions complaints "
            "| client_id properties jstack"
        ),
        "brokerConsumeStats": f"topic group broker_name qid {_GROUP_OFFSETS} diff last_time | diff_total",
        "startMonitoring": "time kind group text",
        "resetOffsetByTime": _MOVED,
        "skipAccumulatedMessage": _MOVED,
        "cloneGroupOffset": "src_group dest_group topic queues",
        "clusterList": (
            "cluster_name broker_name bid addr version in_tps_load out_tps_load pcwait_ms hour space "
            "| cluster_name broker_name in_total_yest out_total_yest in_total_today out_total_today"
        ),
        "brokerStatus": _CONFIG,
        "getBrokerConfig": _CONFIG,
        "updateBrokerConfig": "address key value",
        "cleanExpiredCQ": _CLEANED,
        "cleanUnusedTopic": _CLEANED,
        "deleteExpiredCommitLog": _CLEANED,
        "timerStatus": "broker_addr pending next_due oldest_stored log_held_bytes",
        "updateKvConfig": "namespace key value",
        "deleteKvConfig": "namespace key",
        "getNamesrvConfig": _CONFIG,
        "updateNamesrvConfig": "key value",
        "wipeWritePerm": "name_server broker_name topics",
        "drainBroker": "name_server broker_name topics | group members unread | broker_name drained unread",
        "addWritePerm": "name_server broker_name topics",
        "exportMetadata": "path",
        "exportConfigs": "path",
        "exportMetrics": "path",
        "haStatus": (
            "broker_name bid addr role log_end lag_bytes follows "
            f"| master_addr slave state acknowledged lag_bytes lag_ms in_sync | {_IN_SYNC_MEMBER}"
        ),
        "switchMaster": "master epoch master_before epoch_before",
        "haElect": f"{_IN_SYNC_MEMBER} | master epoch",
        "haConfigure": "members members_before in_sync_min flush",
        "updateAclConfig": "address accessKey ...",
        "deleteAclConfig": "address access_key",
        "getAclConfig": "address accessKey ... | address global_white_addrs",
        "clusterAclConfigVersion": "cluster broker_name address path version updated",
        "updateGlobalWhiteAddr": "address global_white_addrs",
    }
)


def json_help(name: str) -> str:
    """The line of a command's help about its rows."""
    kinds = (f"{{{', '.join(kind.split())}}}" for kind in JSON_ROWS[name].split("|"))
    return f"Rows of --output json:  {' or '.join(kinds)}"
