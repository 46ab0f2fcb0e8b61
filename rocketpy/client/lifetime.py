"""What a facade holds while it is open: the nursery of its tasks, its connections, its instance."""

from __future__ import annotations

import logging
import os
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

import attrs
import trio

from rocketpy.errors import ClientError
from rocketpy.message.message_id import UniqueIdGenerator
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.client import RemotingClient

from .api import MQClientAPI
from .client_id import local_address
from .instance import ClientInstance, wall_clock_ms
from .name_servers import NameServers
from .options import ClientOptions

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 3.0

ServerRequestHandler = Callable[[RemotingCommand, Channel], Awaitable[RemotingCommand | None]]
