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
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import click

from rocketpy import aio
from rocketpy.acl.credentials import parse_credentials
from rocketpy.client.options import TlsOptions
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, RocketError
from rocketpy.remoting.signature import Credentials

from .admin import Admin
from .core import TIMEOUT_S, NotFound, PartialFailure
from .output import Format, Output, echo

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
    *, example: str, destructive: str | None = None, run: Callable[..., Any] = aio.run
) -> Callable[[CommandBody], click.Command]:
    """Make a click command of an async function `(admin, out, **options)` that returns an exit status or None.

    Args:
        destructive: what is to be confirmed on a terminal, with the options in braces; `--yes` answers it.
        run: runs the function to its end, in the loop that it needs.
    """

    def make(function: CommandBody) -> click.Command:
        @functools.wraps(function)
        def entry(**options: Any) -> int:
            return _run(function, destructive, run, options)

        decorated: Any = entry
        decorated = click.option("--debug", is_flag=True, help="Show the stack trace of an error.")(decorated)
        decorated = click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            default=TIMEOUT_S,
            show_default=True,
            help="Seconds (not milliseconds) that a server may take for one answer; three times as long for queries, "
            "for backlogs, and for what a broker asks of a client.",
        )(decorated)
        decorated = click.option(
            "--output",
            "output_format",
            type=click.Choice([form.value for form in Format]),
            default="text",
            help="`json` prints one object per row.",
        )(decorated)
        if destructive is not None:
            decorated = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(decorated)
        decorated = click.option(
            "-n",
            "--namesrvAddr",
            "--namesrv-addr",
            "name_servers",
            envvar="NAMESRV_ADDR",
            help="Name servers, `host:port;host:port`.  [env: NAMESRV_ADDR]",
        )(decorated)
        return click.command(
            epilog=f"Example:  {example}",
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        )(decorated)

    return make


def _run(function: CommandBody, destructive: str | None, run: Callable[..., Any], options: dict[str, Any]) -> int:
    debug = options.pop("debug")
    out = Output(
        Format(options.pop("output_format")),
        echo,
        functools.partial(echo, err=True) if sys.stderr.isatty() else None,
    )
    if destructive is not None and not options.pop("yes") and sys.stdin.isatty():
        click.confirm(destructive.format(**options), abort=True)
    context = click.get_current_context()
    environment = context.find_object(Environment) or Environment()
    settings = {
        "name_servers": options.pop("name_servers") or "",
        "timeout": options.pop("timeout"),
        "tls": tls_options(context.find_root().params),
    }
    try:
        admin = environment.make_admin(**settings, credentials=tool_credentials())
        status: int | None = (environment.run or run)(_within, admin, function, out, options)
        return status or 0
    except KeyboardInterrupt:
        return EXIT_FAILED
    except BaseExceptionGroup as group:
        return _report(_first(group), debug)
    except Exception as error:
        return _report(error, debug)


async def _within(admin: Admin, function: CommandBody, out: Output, options: dict[str, Any]) -> int | None:
    async with admin:
        return await function(admin, out, **options)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


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
    echo("error: " + " ".join(str(error).split()), err=True)
    if isinstance(error, PartialFailure):
        return EXIT_PARTIAL
    if isinstance(error, NotFound) or (isinstance(error, BrokerError) and error.code in NOT_FOUND_CODES):
        return EXIT_NOT_FOUND
    return EXIT_FAILED


def tls_options(given: Mapping[str, Any]) -> TlsOptions | None:
    """Return the TLS of the options before the command (cli.py); None: calls are plain."""
    if not given.get("tls"):
        return None
    return TlsOptions(
        ca_file=given["tls_ca"],
        certificate_file=given["tls_cert"],
        key_file=given["tls_key"],
        key_password=os.environ.get("ROCKETMQ_TLS_KEY_PASSWORD"),
        verify=not given["tls_insecure"],
    )


def tool_credentials() -> Credentials | None:
    """`accessKey` and `secretKey` of $ROCKETMQ_HOME/conf/tools.yml; None when there are none, or no such file.

    Raises:
        ConfigError: the file cannot be understood. Requests without a signature would only be refused later.
    """
    home = os.environ.get("ROCKETMQ_HOME")
    if not home:
        return None
    path = Path(home) / "conf" / "tools.yml"
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return parse_credentials(data, str(path))


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
