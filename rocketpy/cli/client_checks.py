"""The part of `rocketpy doctor` that looks from a client's side: name servers, brokers, a topic, a group.

Each step needs the ones before it: a topic without a route is told apart from a name server that is away, and from
brokers that are not registered. Nothing is sent to a topic, and nothing is changed.
"""

from __future__ import annotations

import contextlib
import difflib
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from time import time as now_s

import attrs

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.admin.statistics import broker_clock_ms
from rocketpy.client.options import TOPIC_UNTIL_CREATED
from rocketpy.codes import (
    HIGHER_VERSION,
    OUR_VERSION,
    LanguageCode,
    MQVersion,
    RequestCode,
    ResponseCode,
    version_name,
)
from rocketpy.errors import BrokerError, ClientError, ConnectionLost, RocketError
from rocketpy.message.names import retry_topic
from rocketpy.message.numbers import int_or
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.client import ConsumerConnection, ConsumerRunningInfo
from rocketpy.remoting.bodies.route import MASTER_ID, ClusterInfo, QueueData, TopicRouteData

from .findings import Finding, report

FILES_WANTED = 1024
SKEW_S = 5.0  # beyond it delays, retention and traces are noticeably off
DISK_NEAR, DISK_FULL = 0.75, 0.90  # the reference deletes early from the first on, and refuses sends from the second on
_ROLE = re.compile(r"need admin permission|no default permission", re.IGNORECASE)  # the account itself is right
_ACCOUNT = re.compile(r"access ?key|signature|\bacl", re.IGNORECASE)


@attrs.frozen
class Question:
    """The part of a cluster that a client needs; None: not asked."""

    topic: str | None = None
    group: str | None = None
    cluster: str | None = None


def examine_client(admin: Admin, question: Question) -> int:
    """Print the findings of a client with the settings of `admin`; 1 if one of them keeps it from working."""

    async def ask() -> list[Finding]:
        async with admin:
            return await client_findings(admin, question)

    return report([*_machine(), *aio.run(ask)])


def _machine() -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} at {sys.executable}")
    with contextlib.suppress(ImportError):
        import resource  # not on Windows

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        remedy = f"ulimit -n {FILES_WANTED}: each broker and name server needs one" if soft < FILES_WANTED else ""
        yield Finding("open files", f"{soft} (hard limit {hard})", remedy)


async def client_findings(admin: Admin, question: Question) -> list[Finding]:
    """Return findings in the order in which a client needs the servers. A fatal one may leave out the steps behind it.

    Args:
        admin: a client within its context, with the name servers, the account and the TLS of the client.
    """
    found, infos, answers = await _name_servers(admin)
    if not answers:
        return found
    info = _merged(infos)
    if infos:
        found += _registered(infos, info, question)
    of_topic, route = await _topic(admin, question, info) if question.topic is not None else ([], None)
    if route is not None and not infos:
        info.broker_addr_table = {data.broker_name: data for data in route.broker_datas}
    for name, data in sorted(info.broker_addr_table.items()):
        if MASTER_ID not in data.broker_addrs:
            found.append(Finding(f"broker {name}", "no master: sends to it fail", "start its master", True))
        for broker_id, address in sorted(data.broker_addrs.items()):
            kind = "broker" if broker_id == MASTER_ID else "slave"
            findings = await _broker(admin, f"{kind} {name}", address)
            found += findings if kind == "broker" else [attrs.evolve(each, is_fatal=False) for each in findings]
    found += of_topic
    if question.group is not None and info.broker_addr_table:
        found += await _group(admin, question.group, question.topic, info)
    return found


# --- name servers -----------------------------------------------------------------------------------------------------


async def _name_servers(admin: Admin) -> tuple[list[Finding], dict[str, ClusterInfo], bool]:
    """Ask each name server for the brokers. Returns: findings, the brokers by name server, and True if one answers."""
    try:
        addresses = await admin.instance.api.name_servers.listed(admin.timeout_s)
    except ClientError as error:
        return (
            [Finding("name servers", str(error), "set NAMESRV_ADDR, or give -n host:port;host:port", True)],
            {},
            False,
        )
    found, infos = [], {}
    for address in sorted(addresses):
        subject = f"name server {address}"
        try:
            answer = await admin.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
            infos[address] = ClusterInfo.decode(answer.body)
        except RocketError as error:
            found.append(_failed(subject, error, "start it, open its port, or correct NAMESRV_ADDR (-n)"))
        else:
            found.append(Finding(subject, f"brokers known: {len(infos[address].broker_addr_table)}"))
    answers = not all(finding.is_fatal for finding in found)
    if answers:  # one is enough for a client
        found = [attrs.evolve(finding, is_fatal=False) for finding in found]
    return found, infos, answers


def _merged(infos: Mapping[str, ClusterInfo]) -> ClusterInfo:
    """Return the brokers that any name server knows."""
    merged = ClusterInfo()
    for info in infos.values():
        merged.broker_addr_table |= info.broker_addr_table
        for cluster, names in info.cluster_addr_table.items():
            merged.cluster_addr_table[cluster] = sorted({*merged.cluster_addr_table.get(cluster, []), *names})
    return merged


def _registered(infos: Mapping[str, ClusterInfo], info: ClusterInfo, question: Question) -> Iterator[Finding]:
    """Yield findings about brokers that are not registered, or not everywhere, or not in the cluster asked for."""
    if not info.broker_addr_table:
        remedy = "start a broker with these name servers (namesrvAddr, -n); its log says why it does not register"
        yield Finding("brokers", "none is registered", remedy, True)
    for address, known in infos.items():
        if missing := sorted(info.broker_addr_table.keys() - known.broker_addr_table.keys()):
            remedy = "name all name servers in the namesrvAddr of these brokers: a client asks any of them"
            yield Finding(f"name server {address}", f"does not know {', '.join(missing)}, as others do", remedy)
    if question.cluster is not None and question.cluster not in info.cluster_addr_table:
        known_clusters = ", ".join(sorted(info.cluster_addr_table)) or "none"
        remedy = "correct the name (brokerClusterName of its brokers), or ask the cluster's own name servers"
        yield Finding(f"cluster {question.cluster}", f"not there; clusters are: {known_clusters}", remedy, True)


# --- brokers ----------------------------------------------------------------------------------------------------------


async def _broker(admin: Admin, subject: str, address: str) -> list[Finding]:
    """Reach a broker at the address that it advertises, and look at its clock, its disk and its version."""
    port = address.rpartition(":")[2]
    remedy = (
        "let the broker advertise an address that this host reaches (advertisedAddresses, or brokerIP1; Docker, NAT)"
    )
    begun_s = now_s()
    try:
        table = await admin.runtime_info(address)
    except RocketError as error:
        return [_failed(subject, error, f"{remedy}, and open its ports {port} and {port} - 2")]
    found = f"reached at {address}; version {table.get('brokerVersionDesc', 'unknown')}, this client {OUR_VERSION.name}"
    findings = [Finding(subject, found), *_age(subject, table), *_disk(subject, table)]
    skew_s = clock_skew_s(table, (begun_s + now_s()) / 2)
    if skew_s is not None and abs(skew_s) > SKEW_S:
        found = f"its clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this host's"
        findings.append(Finding(subject, found, "synchronise both clocks (NTP): delays and times of messages are off"))
    return findings


def clock_skew_s(table: Mapping[str, str], seen_s: float) -> float | None:
    """Return by how many seconds a broker's clock is ahead, to a second; None if its answer does not tell."""
    there_ms = broker_clock_ms(table)
    return None if there_ms is None else there_ms / 1000 + 0.5 - seen_s


def _age(subject: str, table: Mapping[str, str]) -> Iterator[Finding]:
    """Compare the version of a broker with those that clients support. A broker without a version passes."""
    version = int_or(table.get("brokerVersion"), OUR_VERSION)
    if version < MQVersion.V4_1_0_SNAPSHOT:
        found = f"its version {version_name(version)} is older than 4.1: it filters by tags alone, not by SQL"
        yield Finding(subject, found, "upgrade the broker: clients are tried with 4.9 and 5.x")
    elif version >= HIGHER_VERSION:
        found = f"its version number {version} is newer than all that this client knows"
        yield Finding(subject, found, "upgrade the client: install a newer wheel (docs/run/install.md#extras)")


def _disk(subject: str, table: Mapping[str, str]) -> Iterator[Finding]:
    ratios = {}
    for key in ("commitLogDiskRatio", "consumeQueueDiskRatio"):
        try:
            ratios[key] = float(table.get(key, ""))
        except ValueError:
            continue
    key = max(ratios, key=ratios.__getitem__, default="")
    if key and ratios[key] >= DISK_NEAR:
        is_full = ratios[key] >= DISK_FULL
        effect = "sends are refused" if is_full else "messages are deleted before fileReservedTime"
        remedy = "free space, or lower fileReservedTime"
        yield Finding(subject, f"its disk is {ratios[key]:.0%} full ({key}): {effect}", remedy, is_full)


# --- a topic ----------------------------------------------------------------------------------------------------------


async def _topic(admin: Admin, question: Question, info: ClusterInfo) -> tuple[list[Finding], TopicRouteData | None]:
    """Look for the route of a topic, and for the reason if there is none, or if it cannot be used."""
    assert question.topic is not None
    topic, subject = question.topic, f"topic {question.topic}"
    try:
        route = await admin.route(topic)
    except RocketError as error:
        if isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            return [await _missing(admin, topic)], None
        return [_failed(subject, error, "look at the name server's log")], None
    names = sorted(data.broker_name for data in route.queue_datas)
    found = [Finding(subject, f"on {', '.join(names)}"), *_permissions(subject, route)]
    clusters = {data.cluster for data in route.broker_datas}
    if question.cluster is not None and question.cluster not in clusters:
        remedy = f"mqadmin updateTopic -c {question.cluster} -t {topic}, or use the other cluster"
        text = f"not in cluster {question.cluster}, but in {', '.join(sorted(clusters))}"
        found.append(Finding(subject, text, remedy, True))
    if gone := sorted(set(names) - info.broker_addr_table.keys()) if info.broker_addr_table else []:
        found.append(Finding(subject, f"on {', '.join(gone)}, not registered now", "start the broker", True))
    return found, route


async def _missing(admin: Admin, topic: str) -> Finding:
    """Tell a missing topic from one that the first send creates, and from another name."""
    try:
        topics = await admin.topics()
    except RocketError:  # for administrators only
        topics = []
    suffix = topic.rpartition("%")[2]
    near = [name for name in topics if name.rpartition("%")[2] == suffix and name[0] != "%"]
    near = near or difflib.get_close_matches(topic, topics, 1, 0.8)
    subject, create = f"topic {topic}", f"mqadmin updateTopic -c CLUSTER -t {topic}"
    if near:
        hint = "its namespace (NAMESPACE%Topic)" if near[0].rpartition("%")[2] == suffix else "the name"
        return Finding(subject, f"missing; there is {near[0]}", f"correct {hint}, or {create}", True)
    if TOPIC_UNTIL_CREATED in topics:
        return Finding(
            subject, "missing; the first send creates it (autoCreateTopicEnable)", f"send to it, or {create}"
        )
    found = "missing, and no broker creates topics (autoCreateTopicEnable=false)"
    return Finding(subject, found, create, True)


def _permissions(subject: str, route: TopicRouteData) -> Iterator[Finding]:
    for flag, number, what in (
        (PermName.WRITE, "write_queue_nums", "written to"),
        (PermName.READ, "read_queue_nums", "read"),
    ):
        refusing = [data for data in route.queue_datas if not (data.perm & flag and getattr(data, number))]
        if refusing:
            names = ", ".join(f"{data.broker_name} (perm {data.perm}, {_queues(data)})" for data in refusing)
            remedy = "mqadmin updateTopicPerm -p 6; of a whole broker: brokerPermission=6, mqadmin addWritePerm"
            yield Finding(subject, f"cannot be {what} on {names}", remedy, len(refusing) == len(route.queue_datas))


def _queues(data: QueueData) -> str:
    return f"{data.read_queue_nums} queues to read, {data.write_queue_nums} to write"


# --- a group ----------------------------------------------------------------------------------------------------------


async def _group(admin: Admin, group: str, topic: str | None, info: ClusterInfo) -> list[Finding]:
    """Look for the members of a consumer group, its settings, and subscriptions that differ."""
    subject, found = f"group {group}", []
    masters = [address for data in info.broker_addr_table.values() if (address := data.master_addr)]
    for address in masters:
        try:
            config = (await admin.group_configs(address)).get(group)
        except RocketError:
            continue  # a finding about the broker says it
        if config is not None and not config.consume_enable:
            remedy = f"mqadmin updateSubGroup -b {address} -g {group} -s true"
            found.append(Finding(subject, f"{address} lets it consume nothing (consumeEnable)", remedy, True))
    try:
        connection = await admin.consumer_connection(group)
    except BrokerError as error:
        if error.code in {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST}:
            return [
                *found,
                Finding(subject, "no member is connected", "start one, or correct the name of the group", True),
            ]
        return [*found, _failed(subject, error, "ask again")]
    except RocketError as error:
        return [*found, attrs.evolve(_failed(subject, error, "reach the broker first"), is_fatal=False)]
    versions = ", ".join(sorted({_version(each.language, each.version) for each in connection.connection_set}))
    found.append(Finding(subject, f"{len(connection.connection_set)} members: {versions}"))
    if topic is not None and topic not in connection.subscription_table:
        subscribed = ", ".join(sorted(connection.subscription_table.keys() - {retry_topic(group)})) or "nothing"
        found.append(Finding(subject, f"subscribes to {subscribed}, not to {topic}", "correct the subscription", True))
    infos = await _running(admin, group, connection)
    if texts := differing_subscriptions(connection, infos):
        remedy = "let all members have the same subscriptions, or groups of their own: else messages are missed"
        found.append(Finding(subject, f"members subscribe differently: {'; '.join(texts)}", remedy, True))
    return found


async def _running(admin: Admin, group: str, connection: ConsumerConnection) -> dict[str, ConsumerRunningInfo]:
    """Ask the members themselves; who does not answer is left out."""
    infos = {}
    for member in connection.connection_set:
        try:
            infos[member.client_id] = await admin.running_info(group, member.client_id)
        except RocketError:
            continue
    return infos


def differing_subscriptions(connection: ConsumerConnection, infos: Mapping[str, ConsumerRunningInfo]) -> list[str]:
    """Return the subscriptions of a group, each with a member; empty if all members agree.

    Brokers of rocketpy know them. Of others the members tell.
    """
    if connection.differing_subscriptions:
        return [f"{each.text} ({each.client_id})" for each in connection.differing_subscriptions]
    texts: dict[str, str] = {}
    for client_id, info in sorted(infos.items()):
        subscriptions = (f"{data.topic} {data.sub_string}" for data in info.subscription_set)
        texts.setdefault(", ".join(sorted(subscriptions)), client_id)
    return [f"{text} ({client_id})" for text, client_id in texts.items()] if len(texts) > 1 else []


def _version(language: LanguageCode | None, version: int) -> str:
    return f"{language.name if language is not None else 'unknown'} {version_name(version)}"


# --- failures ---------------------------------------------------------------------------------------------------------


def _failed(subject: str, error: RocketError, remedy: str) -> Finding:
    """Return the finding of a request that failed. Accounts, certificates and rights have remedies of their own."""
    text = str(error)
    if isinstance(error, BrokerError) and _ROLE.search(error.remark):
        return Finding(
            subject, "answers, and tells only administrators more", "ask with an account of an administrator"
        )
    if isinstance(error, BrokerError) and _ACCOUNT.search(error.remark):
        remedy = "correct both keys of the account (--credentials, ROCKETPY_* variables, or conf/tools.yml)"
    elif "certificate" in text:
        remedy = "trust its authority (--tls-ca), and let the certificate name this address"
    elif "TLS" in text or isinstance(error, ConnectionLost):
        remedy = "use --tls if it serves TLS (tls.server.mode), and only then"
    return Finding(subject, text, remedy, True)
