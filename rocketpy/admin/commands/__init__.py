"""The commands, one module per family. `REGISTRY` names them without importing any: `mqadmin --help` stays quick."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import attrs


@attrs.frozen
class Entry:
    """The module of a command, its function there, and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


def _entries(module: str, **summaries: str) -> dict[str, Entry]:
    """The function of `printMsgByQueue` is `print_msg_by_queue`, that of `allocateMQ` `allocate_mq`."""
    return {
        name: Entry(module, re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(), summary)
        for name, summary in summaries.items()
    }


REGISTRY: Mapping[str, Entry] = MappingProxyType(
    _entries(
        "topics",
        updateTopic="Create a topic or change its settings",
        deleteTopic="Delete a topic from brokers and name servers",
        updateTopicPerm="Change a topic's permission",
        topicRoute="Show where a topic lives",
        topicStatus="Show the offsets of a topic's queues",
        topicClusterList="List the clusters that have a topic",
        topicList="List all topics",
        updateOrderConf="Put, get or delete a topic's order configuration",
        allocateMQ="Show how queues would be shared among consumers",
        statsAll="Production and consumption of every topic and group",
    )
    | _entries(
        "queries",
        queryMsgById="Find a message by the broker's id",
        queryMsgByKey="Find messages by business key",
        queryMsgByUniqueKey="Find a message by the producer's id",
        queryMsgByOffset="Find a message by queue offset",
        queryCq="Dump entries of a consume queue",
    )
    | _entries(
        "reading",
        printMsg="Print the messages of a topic",
        printMsgByQueue="Print the messages of a queue",
        consumeMessage="Read messages without a group's offsets",
    )
    | _entries("traces", queryMsgTraceById="Show who sent and who consumed a message")
    | _entries(
        "sending",
        sendMessage="Send a message, or one for each line of a file",
        sendMsgStatus="Send test messages to a broker",
        checkMsgSendRT="Measure the response time of sends to a topic",
        clusterRT="Measure the send latency of clusters, again and again",
    )
    | _entries(
        "groups",
        updateSubGroup="Create a subscription group or change its settings",
        deleteSubGroup="Delete a subscription group",
        getConsumerConfig="Show a group's settings on every broker",
        consumerConnection="Show a group's members and subscriptions",
        producerConnection="Show the members of a producer group",
        producer="List all producers of a broker",
    )
    | _entries(
        "progress",
        consumerProgress="Show the backlog of a group, or of all groups",
        consumerStatus="Show the inner state of a group's members",
        brokerConsumeStats="Show the backlog of all groups on a broker",
        startMonitoring="Watch the backlog and the members of all groups",
    )
    | _entries(
        "offsets",
        resetOffsetByTime="Move a group to a point in time",
        skipAccumulatedMessage="Move a group to the end of a topic",
        cloneGroupOffset="Copy the offsets of a group to another",
    )
    | _entries(
        "brokers",
        clusterList="List brokers and their load",
        brokerStatus="Show a broker's run-time figures",
        getBrokerConfig="Show a broker's configuration",
        updateBrokerConfig="Change one key of a broker's configuration at run time",
        cleanExpiredCQ="Delete expired consume queues",
        cleanUnusedTopic="Delete the queues of deleted topics",
        deleteExpiredCommitLog="Delete expired commit log files",
        timerStatus="Show the pending timers of brokers",
    )
    | _entries(
        "name_servers",
        updateKvConfig="Put a key of the name servers' KV configuration",
        deleteKvConfig="Delete a key of the name servers' KV configuration",
        getNamesrvConfig="Show the configuration of the name servers",
        updateNamesrvConfig="Change one key of the name servers' configuration",
        wipeWritePerm="Take a broker's write permission out of the routes",
        addWritePerm="Give a broker its write permission back",
    )
    | _entries("draining", drainBroker="Empty a broker of unread messages before it is stopped")
    | _entries(
        "exports",
        exportMetadata="Write the settings of topics and groups to a file",
        exportConfigs="Write important settings of a cluster to a file",
        exportMetrics="Write figures of a cluster to a file",
    )
    | _entries("replication", haStatus="Show roles, slaves and their lag")
    | _entries(
        "failover",
        switchMaster="Hand over to another in-sync member",
        haElect="Make a member master that may lack messages",
        haConfigure="Change members, minInSyncReplicas or flushDiskType of a running group",
    )
    | _entries(
        "access_control",
        updateAclConfig="Create or change an account",
        deleteAclConfig="Delete an account",
        getAclConfig="Show the accounts",
        clusterAclConfigVersion="Show the versions of the files of accounts",
        updateGlobalWhiteAddr="Set the addresses that need no signature",
    )
)


ALIASES = MappingProxyType(  # Java's second names
    {"deleteaccessconfig": "deleteAclConfig", "getaccessconfigsubcommand": "getAclConfig"}
)


def find(name: str) -> Entry | None:
    """A command by its name in any case."""
    name = ALIASES.get(name.lower(), name)
    return next((entry for known, entry in REGISTRY.items() if known.lower() == name.lower()), None)
