"""Registrations as name servers read them."""

from __future__ import annotations

from rocketpy.remoting.bodies.register import RegisterBrokerBody
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.work import result_of

TWO = {"namesrv_addr": "10.0.0.1:9876;10.0.0.2:9876"}


def decode_registration(data: bytes | None, *, compressed: bool, version: int) -> RegisterBrokerBody:
    """Return the body of a registration by a broker of `version`, read in one go."""
    return result_of(RegisterBrokerBody.reading(data, compressed=compressed, version=version))


def registered(request: RemotingCommand) -> RegisterBrokerBody:
    fields = request.ext_fields or {}
    return decode_registration(request.body, compressed=fields["compressed"] == "true", version=request.version)
