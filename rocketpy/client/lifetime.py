"""What a facade holds while it is open: the nursery of its tasks, its connections, its instance."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 3.0

ServerRequestHandler = Callable[[RemotingCommand, Channel], Awaitable[RemotingCommand | None]]
