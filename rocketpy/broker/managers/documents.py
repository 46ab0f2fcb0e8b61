"""Tables of topics and groups as their files and bodies carry them."""

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
        table: a copy of the caller's own, of the same moment as `version`; its values never change.
        unknown: what files of other versions had besides our fields, by name; looked up late.
    """

    def entries() -> Iterator[tuple[str, object]]:
        for name, config in table.items():
            extra = unknown.get(name)
            yield name, config if extra is None else {**extra, **dict(config.wire_members())}

    return Members(lambda: [("dataVersion", version), (member, Members(entries))])
