"""The keys of one group of brokers in etcd: reads them all as a View, and writes the transactions of a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import attrs

from rocketpy.failover.rules.records import (
    GroupConfig,
    GroupState,
    MasterRecord,
    MemberRecord,
    RecordInvalid,
    SwitchRequest,
    from_json,
    to_json,
)
from rocketpy.failover.rules.requests import Outcome, Transaction, View

from .continuity import Continuity, EtcdReplaced, Seen
from .gateway import EtcdError, EtcdUnavailable, Gateway, decode, encode, number, range_of

_T = TypeVar("_T", bound=attrs.AttrsInstance)


__all__ = ["EtcdReplaced", "GroupKeys"]


@attrs.frozen
class _Key:
    value: bytes
    revision: int


class GroupKeys:
    """The keys below `/rocketpy/<cluster>/<brokerName>/`."""

    def __init__(self, gateway: Gateway, cluster: str, broker_name: str) -> None:
        self.gateway = gateway
        self.prefix = f"/rocketpy/{quote(cluster, safe='')}/{quote(broker_name, safe='')}/".encode()
        self._continuity = Continuity()

    def check(self) -> None:
        """Refuse to go on with a replaced etcd: no reads, no renewal of a lease either. Raises: EtcdReplaced."""
        self._continuity.check()

    async def read(self) -> View:
        """Everything, in one linearizable read. Raises: EtcdError, EtcdUnavailable, EtcdReplaced, RecordInvalid."""
        self.check()
        asked_at = self._continuity.revision
        answer = await self.gateway.read(self.prefix)
        return self._view(answer, answer, asked_at)

    async def register(self, member: str, record: MemberRecord) -> None:
        """Write members/<member> with the lease that the record names."""
        await self.gateway.put(self._key(f"members/{member}"), to_json(record), record.lease)

    async def request_switch(self, request: SwitchRequest) -> None:
        """Ask for another master, as an operator."""
        await self.gateway.put(self._key("switch"), to_json(request))

    async def configure(self, config: GroupConfig) -> View:
        """Write `config` if there is none. Returns: the View with the value that is there now; the caller compares."""
        self.check()
        asked_at = self._continuity.revision
        absent = {"key": encode(self._key("config")), "target": "CREATE", "create_revision": "0"}
        answer = await self.gateway.transact(self._transaction([absent], [self._put("config", to_json(config))]))
        return self._view_of(answer, asked_at)

    async def reconfigure(self, config: GroupConfig, view: View) -> bool:
        """Replace `config` as an operator, if `config` and `state` are those of `view` and no member that leaves is
        registered. Returns: True if it was replaced."""
        self.check()
        kept = {"config": view.config_revision, "state": view.state_revision}
        compares = [
            {"key": encode(self._key(name)), "target": "MOD", "mod_revision": str(revision)}
            for name, revision in kept.items()
        ]
        gone = set(view.config.members if view.config else ()) - set(config.members)
        compares += [
            {"key": encode(self._key(f"members/{name}")), "target": "CREATE", "create_revision": "0"} for name in gone
        ]
        asked_at = self._continuity.revision
        answer = await self.gateway.transact(self._transaction(compares, [self._put("config", to_json(config))]))
        self._view_of(answer, asked_at)
        return bool(answer.get("succeeded"))

    async def decide(self, asked: Transaction) -> tuple[Outcome, View | None]:
        """Carry out a transaction. Returns: its outcome, and the keys as they are now, if etcd has answered.

        Raises:
            EtcdReplaced, RecordInvalid: the keys cannot be used.
        """
        self.check()
        asked_at = self._continuity.revision
        compares = [{"key": encode(self._key("state")), "target": "MOD", "mod_revision": str(asked.state_revision)}]
        known = self._continuity.state_at(asked.state_revision)
        if known is not None:  # in an etcd that was restored this revision may be that of another state
            compares.append({"key": encode(self._key("state")), "target": "VALUE", "value": encode(known)})
        if asked.master_absent:
            compares.append({"key": encode(self._key("master")), "target": "CREATE", "create_revision": "0"})
        puts = []
        if asked.state is not None:
            puts.append(self._put("state", to_json(asked.state)))
        if asked.master is not None:
            puts.append(self._put("master", to_json(asked.master), asked.master.lease))
        try:
            answer = await self.gateway.transact(self._transaction(compares, puts))
        except EtcdError:
            return Outcome.REFUSED, None  # the lease has ended, for example
        except EtcdUnavailable as exc:
            return (Outcome.REFUSED if exc.unsent else Outcome.UNKNOWN), None
        try:
            view = self._view_of(answer, asked_at)
        except EtcdUnavailable:
            return Outcome.UNKNOWN, None
        return (Outcome.SUCCEEDED if answer.get("succeeded") else Outcome.REFUSED), view

    # --- how they look ------------------------------------------------------------------------------------------------

    def _key(self, name: str) -> bytes:
        return self.prefix + name.encode()

    def _put(self, name: str, value: bytes, lease: int = 0) -> dict[str, Any]:
        return {"request_put": {"key": encode(self._key(name)), "value": encode(value), "lease": str(lease)}}

    def _transaction(self, compares: list[dict[str, str]], puts: list[dict[str, Any]]) -> dict[str, Any]:
        """Either way everything is read afterwards, in the same revision."""
        read = {"request_range": range_of(self.prefix)}
        return {"compare": compares, "success": [*puts, read], "failure": [read]}

    def _named(self, each: Mapping[str, Any]) -> tuple[str, _Key]:
        name = decode(each["key"]).removeprefix(self.prefix).decode("utf-8", "replace")
        return name, _Key(decode(each.get("value")), number(each["mod_revision"]))

    def _view_of(self, answer: Mapping[str, Any], asked_at: int) -> View:
        """Return the view that a transaction read at its end."""
        try:
            found = answer["responses"][-1]["response_range"]
        except (KeyError, IndexError, TypeError) as exc:
            raise EtcdUnavailable(f"this is no answer of etcd: {str(answer)[:200]}") from exc
        return self._view(answer, found, asked_at)

    def _view(self, answer: Mapping[str, Any], found: Mapping[str, Any], asked_at: int) -> View:
        try:
            revision, cluster_id = number(answer["header"]["revision"]), str(answer["header"]["cluster_id"])
            keys = dict(self._named(each) for each in found.get("kvs", []))
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise EtcdUnavailable(f"this is no answer of etcd: {str(answer)[:200]}") from exc
        stated, state = keys.get("state", _Key(b"", 0)), _record(GroupState, keys.get("state"))
        epoch = -1 if state is None else state.epoch
        self._continuity.take(Seen(cluster_id, revision, stated.revision, stated.value, epoch), asked_at)
        return View(
            revision=revision,
            config=_record(GroupConfig, keys.get("config")),
            config_revision=keys["config"].revision if "config" in keys else 0,
            state=state,
            state_revision=stated.revision,
            master=_record(MasterRecord, keys.get("master")),
            members=dict(_members(keys)),
            switch=_readable(SwitchRequest, keys.get("switch")),
        )


def _record(kind: type[_T], key: _Key | None) -> _T | None:
    return None if key is None else from_json(kind, key.value)


def _readable(kind: type[_T], key: _Key | None) -> _T | None:
    """Return a record that no decision rests on; None also for one that cannot be read."""
    try:
        return _record(kind, key)
    except RecordInvalid:
        return None


def _members(keys: Mapping[str, _Key]) -> list[tuple[str, MemberRecord]]:
    names = [name for name in keys if name.startswith("members/")]
    records = [(name.removeprefix("members/"), _readable(MemberRecord, keys[name])) for name in names]
    return [(name, record) for name, record in records if record is not None]
