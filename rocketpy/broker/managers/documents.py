"""Encodes the tables of topics and groups for their files and response bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.json_writer import Members


def with_unknown_fields(
    member: str, version: DataVersion, table: Mapping[str, Body], unknown: Mapping[str, Mapping[str, Any]]
) -> Members:
    """`{"dataVersion": .., member: {name: fields}}`, each entry made while it is written.

    Args:
        table: a copy of the table, taken together with `version`; its values never change. unknown: fields that we do
        not know from files of other versions, by name; looked up late.
    """

    def entries() -> Iterator[tuple[str, object]]:
        for name, config in table.items():
            extra = unknown.get(name)
            yield name, config if extra is None else {**extra, **dict(config.wire_members())}

    return Members(lambda: [("dataVersion", version), (member, Members(entries))])
