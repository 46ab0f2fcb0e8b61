"""Java's mqadmin and ours against Java's broker and ours: the same text of each command, up to names, times and sizes.

Where texts differ on purpose, EXCEPTIONS says why; every other difference is a fault of our tool or of our broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from rocketpy.admin.commands import REGISTRY

from .admin_commands import COMMANDS, Command, words
from .admin_texts import Cluster, differences
from .admin_tools import Printed, Session, compile_tool, session

JAVA, OURS = "java", "rocketpy"
FIGURES = {  # commands that print rates and times
    "checkMsgSendRT",
    "brokerStatus",
    "clusterList",
    "clusterRT",
    "consumerProgress",
    "consumerStatus",
    "exportMetrics",
    "sendMsgStatus",
    "statsAll",
}
ANY_ORDER = {  # commands whose lines stand in the order of a hash table in Java
    "brokerConsumeStats",
    "consumeMessage",
    "consumerConnection",
    "consumerProgress",
    "consumerStatus",
    "exportConfigs",
    "exportMetadata",
    "exportMetrics",
    "getBrokerConfig",
    "getNamesrvConfig",
    "printMsg",
    "producer",
    "resetOffsetByTime",
    "skipAccumulatedMessage",
    "statsAll",
    "topicList",
}
OWN_COMMANDS = {
    "drainBroker",
    "haConfigure",
    "haElect",
    "haStatus",
    "switchMaster",
    "timerStatus",
}  # Java's tool has nothing to compare them with
TOOL, BROKER = "tool", "broker"
TRACE_PRODUCER = "producer group (_INNER_TRACE_PRODUCER"  # registers with a heartbeat up to 30 s after its start


@attrs.frozen
class Exempt:
    """Which comparison a command is left out of, and why."""

    of: frozenset[str]
    reason: str


def tool(reason: str) -> Exempt:
    return Exempt(frozenset({TOOL}), reason)


def broker(reason: str) -> Exempt:
    return Exempt(frozenset({BROKER}), reason)


UNKNOWN = "our tool says what does not exist, and its exit status is not 0; Java's reports success"
USAGE = "our tool reports wrong usage on standard error, with exit status 2"
OWN_SETTINGS = "our servers have settings of their own, and other values that depend on the machine"
SHARES = "Java shares the queues out in the order of a hash table, our tool as consumers do, who sort them"
SAMPLES = "earliestMessageTimeStamp is -1 in Java until 8 MB are stored; some figures come with the first samples"
HELP = "the options of our tool, which are more"
ANY_QUEUE = "the queue is a random one"
ENDLESS = "interrupted by the test: Java's tool reports that as a failure, and the number of rounds differs"
EXCEPTIONS: Mapping[str, Exempt] = {
    "allocateMQ -t orders -i 10.0.0.1,10.0.0.2": tool(SHARES),
    "brokerStatus -b {broker}": broker(SAMPLES),
    "brokerStatus -c DefaultCluster": broker(SAMPLES),
    "brokerStatus -c none": tool(UNKNOWN),
    "clusterList -i 1": tool(ENDLESS),
    "clusterRT -a 2 -s 16 -i 1": tool(ENDLESS),
    "clusterRT -a 2 -s 16 -i 1 -p true -m room -c DefaultCluster": tool(ENDLESS),
    "clusterRT -a 2 -s 16 -i 1 -c none": tool(UNKNOWN),
    "consumeMessage -t orders -i 1": tool(USAGE),
    "consumeMessage -t orders -o 1": tool(USAGE),
    "deleteTopic -c none -t made": tool(UNKNOWN),
    "exportMetadata -b {broker} -f {export}": tool(USAGE),
    "exportMetadata -c none -f {export}": tool(UNKNOWN),
    "exportMetadata -f {export}": tool(USAGE),
    "getBrokerConfig -b {broker}": broker(OWN_SETTINGS),
    "getBrokerConfig -b {broker} (again)": broker(OWN_SETTINGS),
    "getBrokerConfig -c DefaultCluster": broker(OWN_SETTINGS),
    "getBrokerConfig -c none": tool(UNKNOWN),
    "getNamesrvConfig": broker(OWN_SETTINGS),
    "getNamesrvConfig (again)": broker(OWN_SETTINGS),
    "noSuchCommand": tool(USAGE),
    "sendMessage -t made -p hello -i 2": tool(USAGE),
    "sendMessage -t made -p hello -k k1 -c TagC": Exempt(frozenset({TOOL, BROKER}), ANY_QUEUE),
    "sendMessage -t made -p hello -m true": Exempt(frozenset({TOOL, BROKER}), ANY_QUEUE),
    "startMonitoring": tool(ENDLESS),
    "topicRoute": tool(USAGE),
    "topicRoute -h": tool(HELP),
    "updateBrokerConfig -b {broker} -k noSuchKey -v 1": Exempt(frozenset({TOOL, BROKER}), UNKNOWN),
    "updateNamesrvConfig -k noSuchKey -v true": Exempt(frozenset({TOOL, BROKER}), UNKNOWN),
    "updateSubGroup -c none -g made": tool(UNKNOWN),
    "updateTopic -c none -t made": tool(UNKNOWN),
    "updateTopicPerm -b 127.0.0.1:1 -t made -p 4": tool(UNKNOWN),
    "wipeWritePerm -b none": tool(UNKNOWN),
    "addWritePerm -b none": tool(UNKNOWN),
}
OUTCOMES = {  # commands whose text is the same; they differ in whether they report a failure
    "cleanExpiredCQ -c none",
    "getConsumerConfig -g none",
    "queryMsgByOffset -t orders -b broker-a -i 1 -o 2000",
    "statsAll -t made",
    "updateTopic -b {broker} -t first -r 4 -w 4 -o true",  # Java's complains that there is no order configuration yet
}


@attrs.frozen
class Run:
    """What every command printed in one session, made comparable."""

    lines: Mapping[str, list[str]]
    succeeded: Mapping[str, bool]
    printed: Mapping[str, Printed]


def run_all(running: Session, exports: Path) -> Run:
    cluster = Cluster.of(running.broker, running.sent)
    printed = {title: run_one(running, command, exports) for title, command in COMMANDS.items()}
    lines = {
        title: [
            line
            for line in cluster.comparable(
                one.output, figures=name(title) in FIGURES, any_order=name(title) in ANY_ORDER
            )
            if not line.lstrip().startswith(TRACE_PRODUCER)
        ]
        for title, one in printed.items()
    }
    return Run(lines, {title: one.succeeded for title, one in printed.items()}, printed)


def run_one(running: Session, command: Command, exports: Path) -> Printed:
    """What the command printed, and then the files that it wrote."""
    exports.mkdir(exist_ok=True)
    printed = running.tool(words(command, running, str(exports)), endless=command.endless)
    text = printed.output.replace(str(exports), "EXPORTS").rstrip()
    for file in sorted(exports.glob("*.json")):
        text += f"\n{file.name}:\n{file.read_text()}"
        file.unlink()
    return attrs.evolve(printed, output=text)


def name(title: str) -> str:
    return title.split()[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Run]:
    """By tool and broker."""
    directory = tmp_path_factory.mktemp("texts")
    classes = compile_tool(tmp_path_factory.mktemp("classes"))
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)  # consumerStatus writes there
        for target in (JAVA, OURS):
            for kind in (JAVA, OURS):
                with session(target, kind, classes, directory / f"home-{kind}-{target}") as running:
                    found[kind, target] = run_all(running, directory / "exports")
    return found


def check(title: str, wanted: Run, got: Run, *, outcome: bool = True) -> None:
    different = "\n".join(differences(wanted.lines[title], got.lines[title]))
    assert not different, f"{title}\n{different}\n{got.printed[title].errors[:2000]}"
    assert not outcome or wanted.succeeded[title] == got.succeeded[title], got.printed[title].errors[:2000]


@pytest.mark.parametrize("title", COMMANDS)
def test_our_broker_answers_javas_tool_as_javas_does(title: str, runs: Mapping[tuple[str, str], Run]) -> None:
    exempt = EXCEPTIONS.get(title)
    if exempt is None or BROKER not in exempt.of:
        check(title, runs[JAVA, JAVA], runs[JAVA, OURS], outcome=not COMMANDS[title].endless)


@pytest.mark.parametrize("target", [JAVA, OURS])
@pytest.mark.parametrize("title", COMMANDS)
def test_our_tool_prints_what_javas_does(title: str, target: str, runs: Mapping[tuple[str, str], Run]) -> None:
    """Fault: `mqadmin queryMsgById` showed NOT_CONSUME_YET for a broadcasting group without offsets."""
    exempt = EXCEPTIONS.get(title)
    if exempt is None or TOOL not in exempt.of:
        has_outcome = title not in OUTCOMES and not COMMANDS[title].endless
        check(title, runs[JAVA, target], runs[OURS, target], outcome=has_outcome)


@pytest.mark.parametrize("title", [title for title, exempt in EXCEPTIONS.items() if BROKER not in exempt.of])
def test_our_tool_prints_the_same_of_both_brokers(title: str, runs: Mapping[tuple[str, str], Run]) -> None:
    if not COMMANDS[title].endless:
        check(title, runs[OURS, JAVA], runs[OURS, OURS])


def test_every_command_is_compared() -> None:
    assert {name(title) for title in COMMANDS} | OWN_COMMANDS == {*REGISTRY, "noSuchCommand"}
    assert {*EXCEPTIONS, *OUTCOMES} <= set(COMMANDS)


@pytest.mark.parametrize("title", ["getBrokerConfig -b {broker}", "getNamesrvConfig"])
def test_our_servers_have_all_settings_of_javas(title: str, runs: Mapping[tuple[str, str], Run]) -> None:
    names = {line.split("=")[0].strip() for line in runs[JAVA, JAVA].lines[title]}
    assert names - {line.split("=")[0].strip() for line in runs[JAVA, OURS].lines[title]} <= {""}
