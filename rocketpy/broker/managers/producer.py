"""Producers that are online: by group for transaction checks, by client id for replies.

A client id stays reachable until the last of its groups is removed (the reference drops it with the first).

Source: RocketMQ 4.9 `ProducerManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from rocketpy.faults import do_each
from rocketpy.remoting.abc import Channel

from ..clock import Clock, ProcessPauses
from .client_channel import CHANNEL_EXPIRED_MS, ClientChanges, ClientChannelInfo

GROUPS_PER_STEP = 500


class ProducerManager:
    """The connected producers by group; chooses the producer that is asked about a transaction."""

    def __init__(self, clock: Clock, pauses: ProcessPauses | None = None) -> None:
        self._clock = clock
        self._pauses = pauses or ProcessPauses(clock)
        self._groups: dict[str, dict[int, ClientChannelInfo]] = {}
        self._clients: dict[str, dict[str, dict[int, int]]] = {}
        """Client id -> access key -> connection -> groups that use it. The account that came first is the first one,
        the connection with the last heartbeat the last one. Heartbeats with the client id of another account are not
        refused: a stranger could so shut out clients, by using their ids before them."""
        self._connections: dict[int, set[str]] = {}  # connection -> its groups
        self._infos: dict[int, ClientChannelInfo] = {}  # connection -> its client by the last heartbeat
        self._next_channel = 0
        self.changes = ClientChanges()

    def register(self, group: str, info: ClientChannelInfo) -> None:
        """Process one group of a heartbeat; `changes.tell()` follows after the last one."""
        if self.enter(group, info):
            self.changes.add(info.connection)

    def enter(self, group: str, info: ClientChannelInfo) -> bool:
        """`register` without a report of changes. Returns True if the members of the group changed."""
        table = self._groups.setdefault(group, {})
        known = table.get(info.connection)
        is_other = known is None or (known.client_id, known.access_key) != (info.client_id, info.access_key)
        if known is not None and is_other:
            self._release(known)
        connections = self._clients.setdefault(info.client_id, {}).setdefault(info.access_key, {})
        connections[info.connection] = connections.pop(info.connection, 0) + is_other
        self._connections.setdefault(info.connection, set()).add(group)
        self._infos[info.connection] = info
        table[info.connection] = info
        return is_other

    def move_to_newest(self, info: ClientChannelInfo) -> None:
        """A heartbeat came that changes nothing: for `find_channel` it is the last one of its client id."""
        connections = self._clients.get(info.client_id, {}).get(info.access_key, {})
        if info.connection in connections:
            connections[info.connection] = connections.pop(info.connection)

    def unregister(self, group: str, connection: int) -> None:
        self._remove(group, connection)
        self.changes.tell()

    def connection_closed(self, connection: int) -> None:
        do_each(lambda group: self._remove(group, connection), list(self._connections.get(connection, ())))
        self.changes.tell()

    def _remove(self, group: str, connection: int) -> None:
        table = self._groups.get(group, {})
        info = table.pop(connection, None)
        if info is not None:
            self._release(info)
            self._leave(group, connection)
            self.changes.add(connection)
        if not table:
            self._groups.pop(group, None)

    def sweep(self) -> Generator[None, None, list[Channel]]:
        """Forget clients silent for 120 s; returns their channels, which are to be closed. Work in steps."""
        now_ms = self._clock.monotonic_ms()
        gone: dict[int, Channel] = {}
        for number, group in enumerate(list(self._groups), 1):
            gone.update(self._drop_silent(group, now_ms))
            if number % GROUPS_PER_STEP == 0:
                self.changes.tell()
                yield
        self.changes.tell()
        return list(gone.values())

    def _drop_silent(self, group: str, now_ms: int) -> dict[int, Channel]:
        members = self._groups.get(group, {}).values()
        silence_ms = self._pauses.silence_ms
        gone = {
            info.connection: info.channel
            for info in members
            if silence_ms(info.last_heartbeat.seen_ms, now_ms) > CHANNEL_EXPIRED_MS
        }
        do_each(lambda connection: self._remove(group, connection), gone)
        return gone

    @property
    def connections(self) -> list[int]:
        return list(self._connections)

    def groups_of(self, connection: int) -> tuple[list[str], ClientChannelInfo | None]:
        """The groups of the connection, sorted, and its client."""
        names = sorted(self._connections.get(connection, ()))
        return names, self._groups[names[0]][connection] if names else None

    def client_on(self, connection: int) -> ClientChannelInfo | None:
        return self._infos.get(connection)

    def holds(self, group: str, info: ClientChannelInfo) -> bool:
        """Return True if the group has this very entry for its connection, not an equal one."""
        return self._groups.get(group, {}).get(info.connection) is info

    def find_channel(self, client_id: str) -> Channel | None:
        """The connection of this client that sent the last heartbeat: one without an end, which the client has left,
        sends none. Slots of connections are used again, so their numbers say nothing. With access control a client id
        belongs to the account that used it first, until the last of its connections is closed."""
        accounts = self._clients.get(client_id)
        return self._infos[next(reversed(next(iter(accounts.values()))))].channel if accounts else None

    def available_channel(
        self, group: str, may_ask: Callable[[ClientChannelInfo], bool] | None = None
    ) -> Channel | None:
        """One online member of the group, round robin.

        Args:
            may_ask: None: every member may be asked. It is called once for each account and address.
        """
        members = list(self._groups.get(group, {}).values())
        if may_ask is not None:
            signers = {(info.access_key, info.channel.peer.host): info for info in members}
            allowed = {signer for signer, info in signers.items() if may_ask(info)}
            members = [info for info in members if (info.access_key, info.channel.peer.host) in allowed]
        if not members:
            return None
        self._next_channel += 1
        return members[self._next_channel % len(members)].channel

    def group_names_of(self, connection: int) -> frozenset[str]:
        return frozenset(self._connections.get(connection, ()))

    def members(self, group: str) -> list[ClientChannelInfo]:
        return list(self._groups.get(group, {}).values())

    @property
    def group_names(self) -> list[str]:
        return list(self._groups)

    def member_count(self, group: str) -> int:
        return len(self._groups.get(group, ()))

    @property
    def groups(self) -> dict[str, list[ClientChannelInfo]]:
        return {group: list(table.values()) for group, table in self._groups.items()}

    def _release(self, info: ClientChannelInfo) -> None:
        accounts = self._clients[info.client_id]
        connections = accounts[info.access_key]
        connections[info.connection] -= 1
        if not connections[info.connection]:
            del connections[info.connection]
        if not connections:
            del accounts[info.access_key]
        if not accounts:
            del self._clients[info.client_id]

    def _leave(self, group: str, connection: int) -> None:
        groups = self._connections.get(connection, set())
        groups.discard(group)
        if not groups:
            self._connections.pop(connection, None)
            self._infos.pop(connection, None)
