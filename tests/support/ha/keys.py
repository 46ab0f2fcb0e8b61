"""What etcd holds of a group, as an operator reads and changes it."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import attrs
import trio

from rocketpy.failover.etcd.gateway import Access, Gateway, decode, encode
from rocketpy.failover.etcd.group_keys import GroupKeys
from rocketpy.failover.etcd.operator import switch_master
from rocketpy.failover.rules.records import GroupState, MasterRecord, MemberRecord, from_json
from tests.support.etcd import EtcdCluster

from .history import History

WATCH_S = 0.02
ASK_TIMEOUT_S = 2.0  # of one member of etcd: the next one is asked then
ALL_TIMEOUT_S = 5.0


@attrs.define(eq=False)
class KeysInEtcd:
    """The keys of the group `broker-a`. All but `watch` raise OSError while no member of etcd answers."""

    etcd: EtcdCluster
    history: History
    _token: str = attrs.field(init=False, default="")
    _stop: threading.Event = attrs.field(init=False, factory=threading.Event)

    def _ask(self, what: str, body: dict[str, str]) -> dict[str, Any]:
        """Of the first member of etcd that answers."""
        failure: OSError = OSError("etcd has no members")
        for address in self.etcd.addresses:
            request = urllib.request.Request(f"{address}/v3/{what}", json.dumps(body).encode(), self._headers(address))
            try:
                with urllib.request.urlopen(request, timeout=ASK_TIMEOUT_S) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except OSError as exc:
                failure = exc
        raise failure

    def _headers(self, address: str) -> dict[str, str]:
        """With a token, if etcd has accounts."""
        if self.etcd.account is None:
            return {}
        if not self._token:
            name, password = self.etcd.account
            body = json.dumps({"name": name, "password": password}).encode()
            with urllib.request.urlopen(f"{address}/v3/auth/authenticate", body, timeout=ASK_TIMEOUT_S) as answer:
                self._token = json.load(answer)["token"]
        return {"Authorization": self._token}

    def _read(self, name: str, revision: int = 0) -> tuple[bytes | None, int]:
        """(value of a key of the group, the revision that has written it); `revision`: as it was then; 0: now."""
        key = f"/rocketpy/DefaultCluster/broker-a/{name}".encode()
        kvs = self._ask("kv/range", {"key": encode(key), "revision": str(revision)}).get("kvs", [])
        return (decode(kvs[0]["value"]), int(kvs[0]["mod_revision"])) if kvs else (None, 0)

    def state(self) -> GroupState | None:
        value, _ = self._read("state")
        return None if value is None else from_json(GroupState, value)

    def epoch(self) -> int:
        """Of the last mastership; -1: there was none."""
        state = self.state()
        return -1 if state is None else state.epoch

    def master(self) -> str | None:
        """Who is alive as master."""
        value, _ = self._read("master")
        return None if value is None else from_json(MasterRecord, value).member

    def lease_of_master(self) -> int:
        """The lease that `master` hangs on; 0: there is no master."""
        value, _ = self._read("master")
        return 0 if value is None else from_json(MasterRecord, value).lease

    def registered(self, member: str) -> MemberRecord | None:
        """The record of a member that is alive."""
        value, _ = self._read(f"members/{member}")
        return None if value is None else from_json(MemberRecord, value)

    def lease_of(self, member: str) -> int:
        """The lease that a member is registered with; 0: it is not."""
        value, _ = self._read(f"members/{member}")
        return 0 if value is None else from_json(MemberRecord, value).lease

    def revoke(self, lease: int) -> None:
        """End a lease, as an operator does with etcdctl, or as a bug of etcd does (issue 15247)."""
        try:
            self._ask("lease/revoke", {"ID": str(lease)})
        except urllib.error.HTTPError as exc:  # it has ended already
            exc.close()
            self.history.happened(f"lease {lease:x} could not be revoked: {exc}")

    def switch_over(self, target: str) -> None:
        """As an operator asks for it; returns when `target` is master."""

        async def switch() -> None:
            async with Gateway(Access(addresses=self.etcd.addresses, timeout_s=ALL_TIMEOUT_S)) as gateway:
                await switch_master(GroupKeys(gateway, "DefaultCluster", "broker-a"), target)

        trio.run(switch)

    def watch(self) -> None:
        """Tell the history of masterships, until the group ends. In a thread of its own."""
        while not self._stop.wait(WATCH_S):
            try:
                state = self.state()
            except OSError:
                continue
            if state is not None:
                self.history.appointed(state.epoch, state.master)

    def read_masterships(self) -> None:
        """From etcd's own history: also those that were too short to be seen."""
        value, written = self._read("state")
        while value is not None:
            state = from_json(GroupState, value)
            self.history.appointed(state.epoch, state.master)
            value, written = self._read("state", written - 1) if written > 1 else (None, 0)

    def end(self) -> None:
        self._stop.set()
