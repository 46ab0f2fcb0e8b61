"""Completion of command lines by shells: `rocketpy completion SHELL` prints what the shell has to read once.

The shell then asks the program itself, with an environment variable that click defines. The commands of mqadmin are
completed behind `rocketpy admin`, too.

Short: one use of click's completion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")


def completion_script(shell: str, programs: Mapping[str, click.Command]) -> str:
    """Return the text for a shell, of all programs."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, f"click has no completion for {shell}"
    return "\n".join(found(command, {}, name, variable_of(name)).source() for name, command in programs.items())


def variable_of(program: str) -> str:
    """Return the environment variable by which a shell asks the program, as click names it."""
    return f"_{program.upper()}_COMPLETE"


class AdminCommand(click.Command):
    """`rocketpy admin`: takes any words, and completes them as mqadmin does."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return complete_admin(ctx, None, incomplete)


def complete_admin(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> list[CompletionItem]:
    """Return how the last word of an mqadmin command line may end. `ctx` has the words before it."""
    from click.shell_completion import ShellComplete

    from rocketpy.admin.cli import mqadmin

    return ShellComplete(mqadmin, {}, "mqadmin", "").get_completions(list(ctx.params["arguments"]), incomplete)
