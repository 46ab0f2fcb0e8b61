"""A group of commands that imports some of them only when one is named or all are listed.

A start of a server parses its arguments with the same group, and needs none of these.

Short: one class.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LateCommands(click.Group):
    """`late`: name of a command -> the module, and the name of the command in it."""

    def __init__(self, *args: Any, late: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._late = dict(late)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._late})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._late:
            module, name = self._late.pop(cmd_name)
            self.add_command(getattr(importlib.import_module(module), name), cmd_name)
        return super().get_command(ctx, cmd_name)
