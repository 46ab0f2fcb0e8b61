"""The parts of a worker that handle its ring messages, and what the request server asks of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from rocketpy.remoting.abc import Channel, Processor
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import SendRequest, SlowPath


class FastPathServer(Protocol):
    """The part of the fast path that the request server drives (broker/fast_path/ring_fast_path.py)."""

    def turn(self) -> bool:
        """Write out backlogs, tell restarted workers. Returns True if there is more to write at once."""

    def is_idle(self) -> bool:
        """Return True if nothing waits to be written or to be answered, and send and pull workers have read all
        requests of clients, which they may divert to the manager."""

    def put_finished(self, record: bytes) -> None:
        """Handle a PUT_RESULT."""

    def cleaned(self, record: bytes) -> None:
        """Handle a CLEANED."""

    def send_arrived(self, request: SendRequest) -> None:
        """A send has arrived on the slow path."""

    def complete(self, request: SendRequest) -> None:
        """A send that has arrived on the slow path ends here."""


class AccessGuard(Protocol):
    """Access control (broker/access.py). `host`: the numeric address of the peer."""

    @property
    def version(self) -> int:
        """The version of the accounts; a request that was allowed under another one is checked again."""

    def check(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        """Let a request pass. `is_counted`: an earlier check has charged its account. Raises RequestRefused."""

    def is_long(self, request: RemotingCommand) -> bool:
        """Return True if a check takes so long that it must not be done in the loop."""

    async def check_long(self, request: RemotingCommand, host: str, *, is_counted: bool = False) -> None:
        """As `check`, in a thread."""

    def check_fast(self, request: RemotingCommand, host: str, topic: str, group: str, *, is_counted: bool) -> None:
        """The same for a send or pull that the fast path was not certain of, with what it has read."""

    def distrust(self, host: str) -> None:
        """The peer has sent what no client sends: a command that cannot be read, or a response to nothing. It counts as
        a failed authentication, unless the peer needs none."""


@attrs.frozen(eq=False, kw_only=True)
class Handlers:
    """The parts of a worker that handle its ring messages, by kind. Only the manager has a slow path."""

    processors: Mapping[int, Processor]
    """COMMAND, by request code; other codes are answered REQUEST_CODE_NOT_SUPPORTED."""
    request_log_sample: int = 0
    """Every Nth send or pull that the slow path answers is logged; 0: none."""
    slow_path: SlowPath | None = None
    """SEND, PULL, COMMIT_OFFSET, TRAFFIC: what the fast path leaves to Python; and the ends of connections."""
    fast_path: FastPathServer | None = None
    """PUT_RESULT, CLEANED: what send and store worker answer to the manager."""
    on_settings: Callable[[bytes], None] | None = None
    """SETTINGS: what the manager tells a query worker."""
    access: AccessGuard | None = None
    """Asked before a request is served; None: all are allowed."""
    inline: Mapping[int, Callable[[RemotingCommand, Channel], RemotingCommand | None]] = attrs.field(factory=dict)
    """By request code: serves a request without a task, or returns None to have it served by its processor. It takes
    no longer than to put a request into a queue, and the response may wait for others (Gateway.write_unhurried)."""
