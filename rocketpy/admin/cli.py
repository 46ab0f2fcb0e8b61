"""`mqadmin`: finds the command, and imports only the module that it needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from .commands import REGISTRY, find
from .connection import shared_options

EPILOG = "Example:  mqadmin topicStatus -n 127.0.0.1:9876 -t OrderTopic"


class Commands(click.Group):
    """The commands by name, in any case; `help` is `--help`, `help NAME` is `NAME --help`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(REGISTRY, key=str.lower)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = find(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"rocketpy.admin.commands.{entry.module}")
        command = getattr(module, entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0].lower() == "help":
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
            args = [args[1], "--help"]
        if find(args[0]) is None and not args[0].startswith("-"):
            raise click.UsageError(f"The sub command {args[0]} not exist.", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names from the registry alone, as the help."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = (name for name in self.list_commands(ctx) if name.lower().startswith(incomplete.lower()))
        return [CompletionItem(name, help=REGISTRY[name].summary) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands from the registry alone, so that help imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, REGISTRY[name].summary) for name in self.list_commands(ctx)])


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=True,
)
@shared_options(with_environment=True)
@click.pass_context
def mqadmin(ctx: click.Context, /, **shared: object) -> None:
    """Administer name servers and brokers. Every command takes -n (name servers) or the environment's NAMESRV_ADDR;
    `mqadmin help COMMAND` shows its options.

    Options of TLS and credentials may stand before the command, too. ROCKETMQ_TLS_KEY_PASSWORD in the environment is
    for an encrypted key.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None, *, prog_name: str = "mqadmin", environment: object = None) -> int:
    """Run one command, in `base.Environment` if one is given. Returns: the exit status (see the package)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        result = mqadmin.main(arguments, prog_name=prog_name, standalone_mode=False, obj=environment)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Abort:
        click.echo("aborted", err=True)
        return 1
    except click.exceptions.Exit as error:
        return error.exit_code
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
