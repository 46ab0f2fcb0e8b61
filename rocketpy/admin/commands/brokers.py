"""Brokers and clusters: load, run-time figures, configuration, cleaning, pending timers (a command of our own)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rocketpy.codes import RequestCode
from rocketpy.errors import RocketError
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.route import MASTER_ID

from ..admin import Admin
from ..base import EXIT_PARTIAL, WATCH, broker_or_cluster, brokers_named, command, option
from ..core import NotFound
from ..output import Column, Output, Table, second_text
from ..statistics import first_number

CLUSTER_LIST = Table(
    (
        Column("Cluster Name", 16),
        Column("Broker Name", 22),
        Column("BID", 4),
        Column("Addr", 22, gap=1),
        Column("Version", 16, gap=1),
        Column("InTPS(LOAD)", 19, right=True, gap=1),
        Column("OutTPS(LOAD)", 19, right=True, gap=1),
        Column("PCWait(ms)", 10, right=True, gap=1),
        Column("Hour", 5, right=True, gap=1),
        Column("SPACE", 6, right=True),
    )
)
CLUSTER_MORE = Table(
    (
        Column("Cluster Name", 16),
        Column("Broker Name", 32, gap=1),
        Column("InTotalYest", 14, right=True, gap=1),
        Column("OutTotalYest", 14, right=True, gap=1),
        Column("InTotalToday", 14, right=True, gap=1),
        Column("OutTotalToday", 14, right=True),
    )
)
TIMERS = Table(
    (
        Column("Broker Addr", 24),
        Column("Pending", 12),
        Column("Next Due", 20),
        Column("Oldest Stored", 20),
        Column("Log Held (bytes)"),
    )
)


@command(example="mqadmin clusterList -n 127.0.0.1:9876", watch=("-i", "--interval", *WATCH))
@option("-m", "--moreStats", is_flag=True, help="Message counts of yesterday and today instead of load.")
async def cluster_list(admin: Admin, out: Output, more_stats: bool) -> int | None:
    """List clusters, brokers and their load."""
    info = await admin.cluster_info()
    table = CLUSTER_MORE if more_stats else CLUSTER_LIST
    out.heading(table)
    failed = False
    for cluster, names in sorted(info.cluster_addr_table.items()):
        for name in sorted(names):
            data = info.broker_addr_table.get(name)
            for broker_id, address in sorted(data.broker_addrs.items() if data else ()):
                figures: Mapping[str, str] = {}
                try:
                    figures = await admin.runtime_info(address)
                except RocketError as error:
                    out.warn(f"{name} {address}: {error}")
                    failed = True
                row = (
                    more_row(cluster, name, figures)
                    if more_stats
                    else load_row(cluster, name, broker_id, address, figures, time.time())
                )
                out.row(table, row)
    return EXIT_PARTIAL if failed else None


def load_row(
    cluster: str, name: str, broker_id: int, address: str, figures: Mapping[str, str], now_s: float
) -> tuple[object, ...]:
    """A broker's row; zeros when it gave no figures."""
    in_load, out_load = (pool_load(figures, "send"), pool_load(figures, "pull"))
    earliest_ms = long_or(figures.get("earliestMessageTimeStamp"), -1)
    hours = (now_s * 1000 - earliest_ms) / 3_600_000 if earliest_ms > 0 else 0.0
    return (
        cluster,
        name,
        broker_id,
        address,
        figures.get("brokerVersionDesc", ""),
        f"{first_number(figures.get('putTps')):.2f}{in_load}",
        f"{first_number(figures.get('getTransferedTps')):.2f}{out_load}",
        figures.get("pageCacheLockTimeMills", "0"),
        f"{hours:.2f}",
        f"{first_number(figures.get('commitLogDiskRatio')):.4f}",
    )


def pool_load(figures: Mapping[str, str], pool: str) -> str:
    """`(queued requests, wait of the first)` of a thread pool."""
    queued = figures.get(f"{pool}ThreadPoolQueueSize", "0")
    return f"({queued},{figures.get(f'{pool}ThreadPoolQueueHeadWaitTimeMills', '0')}ms)"


def more_row(cluster: str, name: str, figures: Mapping[str, str]) -> tuple[object, ...]:
    """A line of `clusterList -m`: messages of yesterday and today."""

    def difference(direction: str, end: str, begin: str) -> int:
        prefix = f"msg{direction}Total"
        return long_or(figures.get(prefix + end), 0) - long_or(figures.get(prefix + begin), 0)

    return (
        cluster,
        name,
        difference("Put", "TodayMorning", "YesterdayMorning"),
        difference("Get", "TodayMorning", "YesterdayMorning"),
        difference("Put", "TodayNow", "TodayMorning"),
        difference("Get", "TodayNow", "TodayMorning"),
    )


@command(example="mqadmin brokerStatus -n 127.0.0.1:9876 -b 127.0.0.1:10911", watch=WATCH)
@broker_or_cluster()
async def broker_status(admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None) -> None:
    """Show a broker's run-time figures, sorted by name."""
    for address in await brokers_named(admin, broker_addr, cluster_name, masters_only=False):
        figures = sorted((await admin.runtime_info(address)).items())
        prefix = "" if broker_addr else f"{address:<24} "
        if out.is_json:
            out.record(address=address, **dict(figures))
        else:
            out.mapping([(f"{prefix}{key:<32}", value) for key, value in figures], "%s: %s")


@command(example="mqadmin getBrokerConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911")
@broker_or_cluster()
async def get_broker_config(admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None) -> None:
    """Show the configuration of a broker, or of all brokers of a cluster."""
    roles: dict[str, str] = {}
    if cluster_name and not broker_addr:
        masters = await admin.addresses_of(cluster_name)
        everyone = await admin.addresses_of(cluster_name, masters_only=False)
        roles = {address: "Master: " if address in masters else "My Slave: " for address in everyone}
    for address in await brokers_named(admin, broker_addr, cluster_name, masters_only=False):
        out.line(f"============{roles.get(address, '')}{address}============")
        config = await admin.broker_config(address)
        if out.is_json:
            out.record(address=address, **config)
        else:
            out.mapping(sorted(config.items()), "%-50s=  %s")
            out.line()


@command(example="mqadmin updateBrokerConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911 -k fileReservedTime -v 48")
@broker_or_cluster()
@option("-k", "--key", required=True, help="Key.")
@option("-v", "--value", required=True, help="Value.")
async def update_broker_config(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None, key: str, value: str
) -> None:
    """Change one key of a broker's configuration at run time; an unknown key is refused here, not ignored."""
    for address in await brokers_named(admin, broker_addr, cluster_name):
        if key not in await admin.broker_config(address):
            raise NotFound(f"broker {address} has no configuration key {key}")
        await admin.update_broker_config(address, {key: value})
        out.done(f"update broker config success, {address}", address=address, key=key, value=value)


async def _clean(
    admin: Admin, out: Output, code: RequestCode, broker_addr: str | None, cluster_name: str | None
) -> int | None:
    """Ask each broker, or those of every cluster, to clean up. Prints `success` or `false` as Java does."""
    if broker_addr or cluster_name:
        try:
            addresses = await brokers_named(admin, broker_addr, cluster_name)
        except NotFound:
            out.line("false")
            raise
    else:
        info = await admin.cluster_info()
        addresses = [
            address
            for _, data in sorted(info.broker_addr_table.items())
            if (address := data.broker_addrs.get(MASTER_ID)) is not None
        ]
    failed = 0
    for address in out.steps(addresses, "brokers"):
        try:
            await admin.ask(address, code, timeout_s=admin.timeout_s * 3)
        except RocketError as error:
            out.warn(f"{address}: {error}")
            failed += 1
            out.record(address=address, success=False)
        else:
            out.record(address=address, success=True)
    out.line("false" if failed or not addresses else "success")
    if not addresses:
        raise NotFound("no broker is registered")
    return (EXIT_PARTIAL if failed < len(addresses) else 1) if failed else None


@command(
    example="mqadmin cleanExpiredCQ -n 127.0.0.1:9876 -b 127.0.0.1:10911", destructive="Delete expired consume queues?"
)
@broker_or_cluster(cluster_long="--cluster")
async def clean_expired_cq(admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None) -> int | None:
    """Delete consume queues whose messages are gone; of all brokers when none is named."""
    return await _clean(admin, out, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker_addr, cluster_name)


@command(example="mqadmin cleanUnusedTopic -n 127.0.0.1:9876 -b 127.0.0.1:10911", destructive="Delete unused topics?")
@broker_or_cluster(cluster_long="--cluster")
async def clean_unused_topic(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None
) -> int | None:
    """Delete the queues of topics that no longer exist; of all brokers when none is named."""
    return await _clean(admin, out, RequestCode.CLEAN_UNUSED_TOPIC, broker_addr, cluster_name)


@command(
    example="mqadmin deleteExpiredCommitLog -n 127.0.0.1:9876 -b 127.0.0.1:10911",
    destructive="Delete expired commit log files?",
)
@broker_or_cluster(cluster_long="--cluster")
async def delete_expired_commit_log(
    admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None
) -> int | None:
    """Delete commit log files that have expired; of all brokers when none is named."""
    return await _clean(admin, out, RequestCode.DELETE_EXPIRED_COMMITLOG, broker_addr, cluster_name)


@command(example="mqadmin timerStatus -n 127.0.0.1:9876 -c DefaultCluster", watch=WATCH)
@broker_or_cluster()
async def timer_status(admin: Admin, out: Output, broker_addr: str | None, cluster_name: str | None) -> None:
    """Show how many timers are pending on brokers, when the next is due, and how much of the log the oldest holds."""
    rows = []
    for address in await brokers_named(admin, broker_addr, cluster_name):
        info = await admin.runtime_info(address)
        pending, due, oldest, held = (
            long_or(info.get(key), 0)
            for key in ("timerPending", "timerNextDueTime", "timerOldestStoreTime", "timerHeldBytes")
        )
        rows.append((address, pending, second_text(due) if due else "-", second_text(oldest) if oldest else "-", held))
    out.table(TIMERS, rows)
