"""Builds commands: common options, the run in a loop, and one line per error.

@command(example="mqadmin topicRoute -n 127.0.0.1:9876 -t OrderTopic -l")
@option("-t", "--topic", help="Topic.", required=True)
async def topic_route(admin: Admin, out: Output, topic: str) -> None:
    \"\"\"Show where a topic lives.\"\"\"
"""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
import click

from rocketpy import aio
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, RocketError
from rocketpy.faults import first_of

from .admin import Admin
from .connection import shared_options, take_settings
from .core import TIMEOUT_S, NotFound, PartialFailure
from .json_rows import json_help
from .output import Format, Output, echo
from .progress_bar import ProgressBar
from .watching import Watch

WATCH = ("--watch",)
EXIT_FAILED, EXIT_USAGE, EXIT_PARTIAL, EXIT_NOT_FOUND = 1, 2, 3, 4
NOT_FOUND_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.NO_MESSAGE,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
    }
)


@attrs.frozen
class Environment:
    """The environment of commands; tests pass another one."""

    make_admin: Callable[..., Admin] = Admin
    run: Callable[..., Any] | None = None  # None: as the command says


CommandBody = Callable[..., Awaitable[int | None]]


def option(short: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """An option under Java's letter and long name, and the long name in kebab case beside it."""
    spellings = [short]
    for name in names:
        spellings.append(name)
        kebab = "--" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.removeprefix("--")).lower()
        if kebab != name:
            spellings.append(kebab)
    parameter = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", names[0].removeprefix("--")).lower().replace("-", "_")
    return click.option(*spellings, settings.pop("to", parameter), **settings)


def command(
    *,
    example: str,
    destructive: str | None = None,
    watch: Sequence[str] = (),
    endless: Callable[[Mapping[str, Any]], bool] = lambda options: False,
    run: Callable[..., Any] = aio.run,
) -> Callable[[CommandBody], click.Command]:
    """Make a click command of an async function `(admin, out, **options)` that returns an exit status or None.

    Args:
        destructive: what is to be confirmed on a terminal, with the options in braces; `--yes` answers it.
        watch: spellings of the option that shows the results again and again; WATCH for most.
        endless: says of the options whether the command goes on until Ctrl-C, which is no failure then.
        run: runs the function to its end, in the loop that it needs.
    """
    kind = _Kind(destructive, bool(watch), endless, run)

    def make(function: CommandBody) -> click.Command:
        @functools.wraps(function)
        def entry(**options: Any) -> int:
            return _run(function, kind, options)

        decorated: Any = entry
        decorated = click.option("--debug", is_flag=True, help="Show the stack trace of an error.")(decorated)
        decorated = click.option(
            "--output",
            "output_format",
            type=click.Choice([form.value for form in Format]),
            default="text",
            help="`json` prints one object per row; so does `jsonl`.",
        )(decorated)
        if destructive is not None:
            decorated = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(decorated)
        if watch:
            decorated = _watch_options(watch)(decorated)
        return click.command(
            epilog=f"{json_help(example.split()[1])}\n\nExample:  {example}",
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        )(_connection_options(decorated))

    return make


@attrs.frozen
class _Kind:
    """The arguments of `command` for one command."""

    destructive: str | None
    is_watchable: bool
    is_endless: Callable[[Mapping[str, Any]], bool]
    run: Callable[..., Any]


def _connection_options(function: Any) -> Any:
    """Add the options by which a command reaches the servers."""
    function = shared_options(with_environment=False)(function)
    function = click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        default=TIMEOUT_S,
        show_default=True,
        help="Seconds (not milliseconds) that a server may take for one answer; three times as long for queries, "
        "for backlogs, and for what a broker asks of a client.",
    )(function)
    return click.option(
        "-n",
        "--namesrvAddr",
        "--namesrv-addr",
        "name_servers",
        envvar="NAMESRV_ADDR",
        help="Name servers, `host:port;host:port`.  [env: NAMESRV_ADDR]",
    )(function)


def _watch_options(names: Sequence[str]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        function = click.option("--rounds", type=click.IntRange(1), help="With --watch: end after so many rounds.")(
            function
        )
        return click.option(
            *names,
            "watch_s",
            type=click.FloatRange(min=0.1),
            metavar="SECONDS",
            help="Show it again every so many seconds, until Ctrl-C.",
        )(function)

    return decorate


def _run(function: CommandBody, kind: _Kind, options: dict[str, Any]) -> int:
    context = click.get_current_context()
    debug = options.pop("debug")
    settings = take_settings(context, options)
    out = Output(Format(options.pop("output_format")), echo, functools.partial(echo, err=True), ProgressBar(sys.stderr))
    watch = _watch(context, options) if kind.is_watchable else None
    if kind.destructive is not None and not options.pop("yes") and sys.stdin.isatty():
        click.confirm(kind.destructive.format(**options), abort=True)
    environment = context.find_object(Environment) or Environment()
    interrupted = 0 if watch is not None or kind.is_endless(options) else EXIT_FAILED
    try:
        admin = environment.make_admin(**settings())
        status: int | None = (environment.run or kind.run)(_within, admin, function, out, options, watch)
        return status or 0
    except KeyboardInterrupt:
        return interrupted
    except BaseExceptionGroup as group:
        return interrupted if group.subgroup(KeyboardInterrupt) else _report(first_of(group), debug)
    except Exception as error:
        return _report(error, debug)


def _watch(context: click.Context, options: dict[str, Any]) -> Watch | None:
    every_s, rounds = options.pop("watch_s"), options.pop("rounds")
    if every_s is not None:
        return Watch(every_s, rounds, context.info_name or "")
    if rounds is not None:
        raise click.UsageError("--rounds needs --watch")
    return None


async def _within(
    admin: Admin, function: CommandBody, out: Output, options: dict[str, Any], watch: Watch | None
) -> int | None:
    async with admin:
        if watch is None:
            return await function(admin, out, **options)
        return await watch.run(lambda round_out: function(admin, round_out, **options), out)


def _report(error: BaseException, debug: bool) -> int:
    """Print one line on standard error; returns the exit status for the kind of failure."""
    if isinstance(error, click.ClickException | click.exceptions.Abort | click.exceptions.Exit):
        raise error
    if isinstance(error, BrokenPipeError):  # the reader of our output has closed it, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if not isinstance(error, RocketError | OSError | ValueError):
        echo(f"unexpected {type(error).__name__}: {error} (--debug shows where)", err=True)
        return EXIT_FAILED
    echo("error: " + " ".join(f"{error}{_remedy(error)}".split()), err=True)
    if isinstance(error, PartialFailure):
        return EXIT_PARTIAL
    if isinstance(error, NotFound) or (isinstance(error, BrokerError) and error.code in NOT_FOUND_CODES):
        return EXIT_NOT_FOUND
    return EXIT_FAILED


def _remedy(error: BaseException) -> str:
    """Return the remedy of an answer that does not tell it: a server of the other kind knows no such request."""
    if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and error.address:
        return (
            f"; is {error.address} of the right kind? -n takes name servers (port 9876), -b takes brokers (port 10911)"
        )
    return ""


async def brokers_named(
    admin: Admin, broker_addr: str | None, cluster_name: str | None, *, masters_only: bool = True
) -> list[str]:
    """The addresses meant by -b or -c; -b wins. Raises UsageError when neither is given."""
    if broker_addr:
        return [broker_addr]
    if cluster_name:
        return await admin.addresses_of(cluster_name, masters_only=masters_only)
    raise click.UsageError("either -b (broker address) or -c (cluster) is required")


def broker_or_cluster(*, cluster_long: str = "--clusterName") -> Callable[[Any], Any]:
    """The pair -b, -c."""

    def decorate(function: Any) -> Any:
        function = option("-c", cluster_long, to="cluster_name", help="All masters of this cluster.")(function)
        return option("-b", "--brokerAddr", help="One broker, host:port.")(function)

    return decorate
