"""Connections of clients between two process trees of a member, held by the guardian.

A role changes with the process tree. Selectors of the tree that ends pass the connections on which nothing is under way
into a unix socket pair, and the acceptor of the next tree takes them out. What clients have sent meanwhile waits in the
connections, so that a planned change of the master costs them a second and no failed request (docs/adr/0114).
"""

from __future__ import annotations

import socket

import attrs

from rocketpy.reactor.handoff import handoff_pair


@attrs.frozen
class Parked:
    """Made before the first fork."""

    _pair: tuple[socket.socket, socket.socket] = attrs.field(factory=handoff_pair)

    @property
    def into(self) -> socket.socket:
        """The end of selectors."""
        return self._pair[0]

    @property
    def out(self) -> socket.socket:
        """The end of the acceptor."""
        return self._pair[1]

    @property
    def fds(self) -> tuple[int, int]:
        """For the children of the guardian, which keep them."""
        return self.into.fileno(), self.out.fileno()
