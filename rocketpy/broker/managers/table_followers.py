"""Slaves that copy topics and groups, and the versions that they have.

A slave names the version that it has saved whenever it asks for a table, about five times a second. So a synchronous
master knows when a change is on its slaves: it acknowledges the creation or deletion of a topic or group then, or after
WAIT_S. A change that was acknowledged is not lost with the master's machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from rocketpy.codes import RequestCode
from rocketpy.message.numbers import long_or
from rocketpy.networks import Network, is_in, parse_address
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.command import RemotingCommand

TABLE_VERSION = "tableVersion"
"""Field of rocketpy in 21 and 201, and in their answers: the version of the table that the slave has, or is given."""
WAIT_S = 1.0
FOLLOWS_S = 2.0  # a slave that has not asked for so long is not waited for
FOLLOWERS_MAX = 64
CHANGES: Mapping[int, int] = {  # the code of a change -> the code by which its table is copied
    RequestCode.UPDATE_AND_CREATE_TOPIC: RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.DELETE_TOPIC_IN_BROKER: RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
}


def version_text(version: DataVersion) -> str:
    """The text of TABLE_VERSION. Equal texts are equal versions."""
    return f"{version.timestamp_ms}.{version.counter}"


class TableFollowers:
    """The slaves that copy the tables of this master. One per manager.

    Args:
        versions: by the code of the table, its version now. slaves: haAddresses; nobody else is waited for.
    """

    def __init__(self, versions: Mapping[int, Callable[[], DataVersion]], slaves: Sequence[Network]) -> None:
        self._versions = versions
        self._slaves = slaves
        self._known: dict[tuple[int, str], tuple[int, float]] = {}  # code, peer -> counter, when it asked last
        self._asked = trio.Event()

    def has_version(self, request: RemotingCommand, channel: Channel) -> bool:
        """Note what a slave has that asks for a table. Returns True if it has the table as it is now."""
        text = (request.ext_fields or {}).get(TABLE_VERSION)
        if text is None:
            return False
        if is_in(parse_address(channel.peer.host), self._slaves):
            self._note((request.code, str(channel.peer)), long_or(text.partition(".")[2], -1))
        return text == version_text(self._versions[request.code]())

    def _note(self, key: tuple[int, str], counter: int) -> None:
        now_s = trio.current_time()
        self._known = {known: seen for known, seen in self._known.items() if now_s - seen[1] < FOLLOWS_S}
        if key in self._known or len(self._known) < FOLLOWERS_MAX:
            self._known[key] = counter, now_s
            self._asked.set()
            self._asked = trio.Event()

    async def wait(self, code: int) -> None:
        """Wait until all that follow have the table as it is now, for at most WAIT_S."""
        counter = self._versions[code]().counter
        with trio.move_on_after(WAIT_S):
            while self._is_behind(code, counter):
                await self._asked.wait()

    def _is_behind(self, code: int, counter: int) -> bool:
        since_s = trio.current_time() - FOLLOWS_S
        return any(
            table == code and known < counter and at_s > since_s for (table, _), (known, at_s) in self._known.items()
        )
