"""The keys of a group, on the model of etcd: for coordinators in simulated time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import attrs
import trio

from rocketpy.failover.etcd.gateway import EtcdStatus, EtcdUnavailable
from rocketpy.failover.etcd.group_keys import GroupKeys
from rocketpy.failover.rules.records import GroupConfig, MemberRecord, SwitchRequest
from rocketpy.failover.rules.requests import Outcome, Transaction, View

from .etcd_model import EtcdModel, Registration

TRAVEL_S = 0.003


@attrs.define(eq=False)
class ModelKeys:
    """Stands in for GroupKeys and its Gateway. `is_away`: nothing is answered; `asked` counts requests."""

    etcd: EtcdModel = attrs.field(factory=EtcdModel)
    is_away: bool = False
    asked: int = 0
    ttl_s: int = 0
    alarms: str = ""
    compacted: list[int] = attrs.field(factory=list)  # revisions
    prefix: bytes = b"/"
    _changed: trio.Event = attrs.field(factory=trio.Event)

    @property
    def gateway(self) -> ModelKeys:
        return self

    def check(self) -> None:
        """This etcd is never replaced."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[GroupKeys]:
        yield cast(GroupKeys, self)

    async def _travel(self) -> None:
        self.asked += 1
        await trio.sleep(TRAVEL_S)
        if self.is_away:
            raise EtcdUnavailable("connection refused", unsent=True)
        self.etcd.expire(trio.current_time())

    def _told(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def grant(self, ttl_s: int) -> tuple[int, int]:
        await self._travel()
        self.ttl_s = ttl_s
        return self.etcd.grant(trio.current_time() + ttl_s), ttl_s

    async def keep_alive(self, lease: int) -> int:
        await self._travel()
        return self.ttl_s if self.etcd.renew(lease, trio.current_time() + self.ttl_s) else 0

    async def revoke(self, lease: int) -> None:
        await self._travel()
        self.etcd.revoke(lease)
        self._told()

    async def status(self) -> EtcdStatus:
        await self._travel()
        return EtcdStatus(revision=self.etcd.revision, db_bytes=len(self.etcd.keys), alarms=self.alarms)

    async def compact(self, revision: int) -> None:
        await self._travel()
        self.compacted.append(revision)

    async def read(self) -> View:
        await self._travel()
        return self.etcd.view()

    async def watch(self, _prefix: bytes, _revision: int, tell: Callable[[], None]) -> None:
        while not self.is_away:
            await self._changed.wait()
            tell()

    async def configure(self, config: GroupConfig) -> View:
        await self._travel()
        if "config" not in self.etcd.keys:
            self.etcd.put("config", config)
        return self.etcd.view()

    async def reconfigure(self, config: GroupConfig, view: View) -> bool:
        await self._travel()
        now = self.etcd.view()
        gone = set(view.config.members if view.config else ()) - set(config.members)
        if (now.config_revision, now.state_revision) != (view.config_revision, view.state_revision):
            return False
        if gone & now.members.keys():
            return False
        self.etcd.put("config", config)
        self._told()
        return True

    async def register(self, member: str, record: MemberRecord) -> None:
        await self._travel()
        self.etcd.put(f"members/{member}", Registration(member, record), record.lease)
        self._told()

    async def request_switch(self, request: SwitchRequest) -> None:
        await self._travel()
        self.etcd.put("switch", request)
        self._told()

    async def decide(self, asked: Transaction) -> tuple[Outcome, View | None]:
        try:
            await self._travel()
        except EtcdUnavailable:
            return Outcome.UNKNOWN, None
        outcome = self.etcd.decide(asked)
        self._told()
        return outcome, self.etcd.view()
