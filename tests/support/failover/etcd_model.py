"""A model of etcd: keys with revisions, leases that end early or late, transactions that are all or nothing."""

from __future__ import annotations

from typing import Any

import attrs

from rocketpy.failover.rules.records import MemberRecord
from rocketpy.failover.rules.requests import Outcome, Transaction, View


@attrs.define
class Key:
    value: Any
    revision: int
    lease: int = 0


@attrs.define
class EtcdModel:
    """Time is an argument: `now` in seconds of true time. Methods are atomic, like etcd's requests."""

    keys: dict[str, Key] = attrs.field(factory=dict)
    leases: dict[int, float] = attrs.field(factory=dict)  # number: when it ends
    revision: int = 1
    is_up: bool = True
    _lease: int = 0
    _view: View | None = None

    def grant(self, ends: float) -> int:
        self._lease += 1
        self.leases[self._lease] = ends
        return self._lease

    def renew(self, lease: int, ends: float) -> bool:
        """Whether the lease was there; it ends at `ends` then."""
        if lease in self.leases:
            self.leases[lease] = max(ends, self.leases[lease])
        return lease in self.leases

    def revoke(self, lease: int) -> None:
        """End a lease and delete its keys, all in one revision."""
        if self.leases.pop(lease, None) is None:
            return
        gone = [name for name, key in self.keys.items() if key.lease == lease]
        if gone:
            self.revision += 1
        for name in gone:
            del self.keys[name]

    def expire(self, now: float) -> None:
        for lease in [lease for lease, ends in self.leases.items() if ends <= now]:
            self.revoke(lease)

    def put(self, name: str, value: Any, lease: int = 0) -> bool:
        """Write a key; False if its lease has ended."""
        if lease and lease not in self.leases:
            return False
        self.revision += 1
        self.keys[name] = Key(value, self.revision, lease)
        return True

    def decide(self, asked: Transaction) -> Outcome:
        """Apply a transaction of a member."""
        state = self.keys.get("state")
        if (state.revision if state else 0) != asked.state_revision:
            return Outcome.REFUSED
        if asked.master_absent and "master" in self.keys:
            return Outcome.REFUSED
        if asked.master and asked.master.lease not in self.leases:
            return Outcome.REFUSED
        self.revision += 1
        if asked.state is not None:
            self.keys["state"] = Key(asked.state, self.revision)
        if asked.master is not None:
            self.keys["master"] = Key(asked.master, self.revision, asked.master.lease)
        return Outcome.SUCCEEDED

    def view(self) -> View:
        """A linearizable read of all keys."""
        if self._view is None or self._view.revision != self.revision:
            values = {name: key.value for name, key in self.keys.items()}
            self._view = View(
                revision=self.revision,
                config=values.get("config"),
                config_revision=self.keys["config"].revision if "config" in self.keys else 0,
                state=values.get("state"),
                state_revision=self.keys["state"].revision if "state" in self.keys else 0,
                master=values.get("master"),
                members={value.member: value.record for value in values.values() if isinstance(value, Registration)},
                switch=values.get("switch"),
            )
        return self._view


@attrs.frozen
class Registration:
    """The value of a key members/<member>."""

    member: str
    record: MemberRecord
