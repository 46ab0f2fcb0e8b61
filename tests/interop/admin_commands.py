"""Command lines of mqadmin that the comparison runs, in this order: all commands, with options that change the text.

Commands that change nothing come first; later ones see what earlier ones did.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import attrs

from .admin_tools import Session

CLUSTER = "DefaultCluster"
LONG = "with-a-name-that-is-longer-than-the-sixty-four-columns-of-the-tables"
ENDLESS = {"clusterList -i", "clusterRT", "clusterRT -p", "startMonitoring"}
LINES = """
clusterList
clusterList -m
clusterList -i 1
topicList
topicList -c
topicRoute -t orders
topicRoute -t orders -l
topicStatus -t orders
topicClusterList -t orders
allocateMQ -t orders -i 10.0.0.1,10.0.0.2
allocateMQ -t none -i 10.0.0.1
statsAll
statsAll -a
statsAll -t orders
statsAll -t TBW102
queryMsgById -i {offset_id}
queryMsgById -i {offset_id},{offset_id2}
queryMsgById -i {unique_id}
queryMsgById -i nonsense
queryMsgById -i {offset_id} -g billing -d {client}
queryMsgById -i {offset_id} -g billing
queryMsgByKey -t orders -k key03
queryMsgByKey -t orders -k none
queryMsgByUniqueKey -t orders -i {unique_id}
queryMsgByUniqueKey -t orders -i {unique_id} -a
queryMsgByUniqueKey -t orders -i {unique_id2}
queryMsgByUniqueKey -t orders -i none
queryMsgByUniqueKey -t orders -i {unique_id} -g billing -d {client}
queryMsgByOffset -t orders -b broker-a -i 1 -o 2
queryMsgByOffset -t orders -b broker-a -i 1 -o 2000
queryMsgByOffset -t orders -b none -i 1 -o 2
queryMsgTraceById -i {unique_id}
queryMsgTraceById -i {unique_id} -t RMQ_SYS_TRACE_TOPIC
queryMsgTraceById -i none
printMsg -t orders
printMsg -t orders -d false -s TagA
printMsg -t orders -c UTF-8 -b 2020-01-01#00:00:00:000 -e 2100-01-01#00:00:00:000
printMsgByQueue -t orders -a broker-a -i 0
printMsgByQueue -t orders -a broker-a -i 0 -p true
printMsgByQueue -t orders -a broker-a -i 0 -p true -d true -f true
printMsgByQueue -t orders -a broker-a -i 1 -f true -s TagB
printMsgByQueue -t orders -a none -i 0 -p true
consumeMessage -t orders
consumeMessage -t orders -b broker-a -i 1
consumeMessage -t orders -b broker-a -i 1 -o 3
consumeMessage -t orders -b broker-a -i 1 -c 3
consumeMessage -t orders -b broker-a -i 1 -o 3000
consumeMessage -t orders -b broker-a -i 1 -s 1500000000000 -e {now}
consumeMessage -t none
consumeMessage -t orders -b none -i 1
consumeMessage -t orders -i 1
consumeMessage -t orders -o 1
queryCq -t orders -q 1 -i 0 -b {broker}
queryCq -t orders -q 1 -i 2 -c 2 -b {broker} -g audit
queryCq -t orders -q 1 -i 0
queryCq -t none -q 1 -i 0 -b {broker}
consumerProgress
consumerProgress -g billing
consumerProgress -g billing -s true
consumerProgress -g stopped
consumerProgress -g stopped -s true
consumerProgress -g none
consumerProgress -g radio
consumerProgress -g radio -s true
consumerConnection -g billing
consumerConnection -g audit -b {broker}
consumerConnection -g radio
consumerConnection -g none
producerConnection -g shop -t orders
producerConnection -g none -t orders
producer -b {broker}
brokerConsumeStats -b {broker}
brokerConsumeStats -b {broker} -l 1
consumerStatus -g billing
consumerStatus -g billing -i {client}
consumerStatus -g billing -i {client} -s
consumerStatus -g billing -s
consumerStatus -g billing -b {broker}
consumerStatus -g none
getConsumerConfig -g billing
getConsumerConfig -g none
brokerStatus -b {broker}
brokerStatus -c DefaultCluster
getBrokerConfig -b {broker}
getBrokerConfig -c DefaultCluster
getNamesrvConfig
brokerStatus -c none
brokerStatus -b 127.0.0.1:1
getBrokerConfig -c none
getBrokerConfig -b 127.0.0.1:1
exportMetadata -c DefaultCluster -f {export}
exportMetadata -c DefaultCluster -t -f {export}
exportMetadata -c DefaultCluster -g -f {export}
exportMetadata -c DefaultCluster -s -f {export}
exportMetadata -b {broker} -t -f {export}
exportMetadata -b {broker} -g -f {export}
exportMetadata -b {broker} -f {export}
exportMetadata -f {export}
exportMetadata -c none -f {export}
exportConfigs -c DefaultCluster -f {export}
exportMetrics -c DefaultCluster -f {export}
clusterAclConfigVersion -b {broker}
clusterAclConfigVersion -c DefaultCluster
updateAclConfig -b {broker} -a someone -s 12345678 -i DENY -t a=PUB,b=SUB
getAclConfig -b {broker}
getAclConfig -c DefaultCluster
updateAclConfig -c DefaultCluster -a someone -s 12345678 -m true
deleteAclConfig -b {broker} -a someone
deleteAclConfig -c DefaultCluster -a someone
updateGlobalWhiteAddr -b {broker} -g 10.0.0.*
updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.*
updateTopic -b {broker} -t made
topicRoute -t made
updateTopic -c DefaultCluster -t made2 -r 4 -w 6 -p 4 -u true -s true
updateTopic -c DefaultCluster -t sorted -r 3 -w 3 -o true
updateTopic -b {broker} -t sorted -r 4 -w 4 -o true
topicRoute -t sorted
updateTopic -b {broker} -t first -r 4 -w 4 -o true
updateTopic -c none -t made
updateTopicPerm -b {broker} -t made -p 4
updateTopicPerm -b {broker} -t made -p 4
updateTopicPerm -c DefaultCluster -t made -p 6
updateTopicPerm -c DefaultCluster -t made -p 6
updateTopicPerm -b 127.0.0.1:1 -t made -p 4
updateTopicPerm -b {broker} -t none -p 6
updateOrderConf -t made -m get
updateOrderConf -t made -m put -v broker-a:4
updateOrderConf -t made -m get
updateOrderConf -t made -m delete
updateOrderConf -t made -m put
updateKvConfig -s space -k key -v value
deleteKvConfig -s space -k key
deleteKvConfig -s space -k key
updateSubGroup -b {broker} -g made
getConsumerConfig -g made
updateSubGroup -c DefaultCluster -g made2 -s false -m true -d true -q 2 -r 3 -i 1 -w 0 -a false
getConsumerConfig -g made2
updateSubGroup -c none -g made
updateTopic -b {broker} -t topic-{long}
updateTopic -b {broker} -t %RETRY%group-{long}
cloneGroupOffset -s stopped -d group-{long} -t orders
brokerConsumeStats -b {broker}
consumerProgress -g group-{long}
consumerProgress
topicStatus -t topic-{long}
topicRoute -t topic-{long} -l
topicList -c
statsAll -t orders
resetOffsetByTime -g stopped -t orders -s 1500000000000
consumerProgress -g stopped
resetOffsetByTime -g stopped -t orders -s now
resetOffsetByTime -g stopped -t orders -s 2020-01-01#00:00:00:000 -f false
resetOffsetByTime -g puller -t orders -s 2020-01-01#00:00:00:000
resetOffsetByTime -g none -t orders -s now
resetOffsetByTime -g stopped -t orders -s nonsense
resetOffsetByTime -g billing -t orders -s now
resetOffsetByTime -g billing -t orders -s now -c
skipAccumulatedMessage -g stopped -t orders
skipAccumulatedMessage -g billing -t orders -f true
skipAccumulatedMessage -g none -t orders
consumerProgress -g stopped
cloneGroupOffset -s stopped -d made -t orders
cloneGroupOffset -s stopped -d made -t orders -o true
cloneGroupOffset -s none -d made -t orders
sendMessage -t made -p hello -k k1 -c TagC
sendMessage -t made -p hello -b broker-a -i 2
sendMessage -t made -p hello -i 2
sendMessage -t made -p hello -b none -i 2
sendMessage -t made -p hello -m true
queryMsgById -i {offset_id2} -s true
sendMsgStatus -b broker-a -s 16 -c 3
checkMsgSendRT -t made -a 3 -s 16
clusterRT -a 2 -s 16 -i 1
clusterRT -a 2 -s 16 -i 1 -p true -m room -c DefaultCluster
clusterRT -a 2 -s 16 -i 1 -c none
updateBrokerConfig -b {broker} -k fileReservedTime -v 71
updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 72
updateBrokerConfig -b {broker} -k noSuchKey -v 1
getBrokerConfig -b {broker}
updateNamesrvConfig -k orderMessageEnable -v true
updateNamesrvConfig -k noSuchKey -v true
getNamesrvConfig
wipeWritePerm -b broker-a
topicRoute -t made -l
addWritePerm -b broker-a
topicRoute -t made -l
wipeWritePerm -b none
addWritePerm -b none
cleanExpiredCQ -b {broker}
cleanExpiredCQ -c DefaultCluster
cleanExpiredCQ
cleanExpiredCQ -c none
cleanUnusedTopic -b {broker}
cleanUnusedTopic -c DefaultCluster
cleanUnusedTopic
deleteExpiredCommitLog -b {broker}
deleteExpiredCommitLog -c DefaultCluster
deleteExpiredCommitLog
deleteSubGroup -b {broker} -g made2
deleteSubGroup -c DefaultCluster -g made -r true
deleteTopic -c DefaultCluster -t made
deleteTopic -c DefaultCluster -t none
deleteTopic -c none -t made
topicList
topicStatus -t made
topicRoute -t made
topicClusterList -t made
statsAll -t made
topicRoute
topicRoute -h
noSuchCommand
startMonitoring
"""


@attrs.frozen
class Command:
    """A line of LINES; `title` is unique among them."""

    title: str
    line: str

    @property
    def endless(self) -> bool:
        return any(self.line == name or self.line.startswith(name + " ") for name in ENDLESS)


def commands() -> list[Command]:
    seen: dict[str, int] = {}
    found = []
    for line in LINES.split("\n"):
        if line:
            seen[line] = seen.get(line, 0) + 1
            found.append(Command(line if seen[line] == 1 else f"{line} (again)", line))
    return found


COMMANDS: Mapping[str, Command] = {command.title: command for command in commands()}


def words(command: Command, session: Session, export: str) -> list[str]:
    """The words of a command line for one cluster. `export`: a directory for exported files."""
    broker, sent = session.broker, session.sent
    values = {
        "broker": broker.address,
        "offset_id": sent[3].offset_id,
        "offset_id2": sent[23].offset_id,
        "unique_id": sent[3].unique_id,
        "unique_id2": sent[23].unique_id,
        "client": "127.0.0.1@billing1",
        "export": export,
        "long": LONG,
        "now": str(int(time.time() * 1000)),
    }
    return [*(word.format(**values) for word in command.line.split()), "-n", broker.namesrv]
