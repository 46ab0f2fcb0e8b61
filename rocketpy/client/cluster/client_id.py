"""The client id, by which groups know a client, and the address at its beginning.

The id must be unique in a group: two members with one id compute the same share of the queues.
"""

from __future__ import annotations

import os
import socket
import time

from ..options import ClientOptions

DEFAULT_INSTANCE_NAME = "DEFAULT"
STREAM_SUFFIX = "@STREAM"  # pull consumers


def local_address() -> str:
    """The address that this host uses for outgoing connections; no packet is sent. 127.0.0.1 without a network."""
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                address = str(probe.getsockname()[0])
                return f"[{address}]" if family == socket.AF_INET6 else address
        except OSError:
            continue
    return "127.0.0.1"


def unique_instance_name(name: str) -> str:
    """DEFAULT becomes `<pid>#<ns>`; a name the user chose stays."""
    return f"{os.getpid()}#{time.monotonic_ns()}" if name == DEFAULT_INSTANCE_NAME else name


def build_client_id(options: ClientOptions, *, unique: bool = True, stream: bool = False) -> str:
    """`<ip>@<instance>[@<unit>][@STREAM]`; not unique for broadcasting, whose offset file is named by the id."""
    instance_name = unique_instance_name(options.instance_name) if unique else options.instance_name
    parts = [options.client_ip or local_address(), instance_name]
    if options.unit_name:
        parts.append(options.unit_name)
    return "@".join(parts) + (STREAM_SUFFIX if stream else "")
