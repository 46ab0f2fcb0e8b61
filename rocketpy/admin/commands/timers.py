"""Timers: what is pending on brokers. A command of our own; figures from the run-time information (code 28)."""

from __future__ import annotations

from rocketpy.message.numbers import long_or

from ..admin import Admin
from ..base import broker_or_cluster, brokers_named, command
from ..output import Column, Output, Table, second_text

TIMERS = Table(
    (
        Column("Broker Addr", 24),
        Column("Pending", 12),
        Column("Next Due", 20),
        Column("Oldest Stored", 20),
        Column("Log Held (bytes)"),
    )
)


@command(example="mqadmin timerStatus -n 127.0.0.1:9876 -c DefaultCluster")
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
