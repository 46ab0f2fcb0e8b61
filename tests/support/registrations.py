"""Registrations as name servers read them."""

from __future__ import annotations

from rocketpy.remoting.bodies.register import RegisterBrokerBody
from rocketpy.remoting.command import RemotingCommand

TWO = {"namesrv_addr": "10.0.0.1:9876;10.0.0.2:9876"}


def registered(request: RemotingCommand) -> RegisterBrokerBody:
    fields = request.ext_fields or {}
    return RegisterBrokerBody.decode_registration(
        request.body, compressed=fields["compressed"] == "true", version=request.version
    )
