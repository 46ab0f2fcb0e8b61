"""The schema that Spark hands to a reader, as columns of ours."""

from __future__ import annotations

from typing import Any

from rocketpy.errors import ConfigError

from .columns import COLUMNS, DIAGNOSTICS, nearest


def columns_of(schema: Any, *, diagnostics: bool = False, json_properties: bool = False) -> tuple[str, ...]:
    """The names in a StructType: each must be a column of the source, with its type.

    Raises:
        ConfigError: what is wrong with which column.
    """
    known = [name for name in COLUMNS if diagnostics or name not in DIAGNOSTICS]
    for field in schema:
        if field.name not in known:
            raise ConfigError(f'the schema names "{field.name}", which is no column{nearest(field.name, known)}')
        wanted = "string" if field.name == "properties" and json_properties else COLUMNS[field.name].ddl
        if (found := field.dataType.simpleString()) != wanted:
            raise ConfigError(f"column {field.name} is {wanted}, the schema says {found}: cast it after reading")
    return tuple(schema.fieldNames())
