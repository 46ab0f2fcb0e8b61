"""`rocketpy console`: options, and the server that they start.

Short: one command.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import click

from rocketpy.admin.connection import SHARED, security_settings, shared_options, tool_credentials
from rocketpy.processes.boot.serving import exit_status

_PATH = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("-n", "--namesrvAddr", "name_servers", envvar="NAMESRV_ADDR", help="Name servers.  [env: NAMESRV_ADDR]")
@shared_options(with_environment=True)
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8180, show_default=True, help="0: any free port.")
@click.option("--host", "hosts", multiple=True, help="Further name by which browsers reach it; may be repeated.")
@click.option("--accounts", type=_PATH, help="plain_acl.yml: its administrators may log in, nobody else sees anything.")
@click.option("--allow-changes", is_flag=True, help="Let them send dead letters again.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    help="Address or network of a proxy in front, whose X-Forwarded-For names the clients; may be repeated.",
)
@click.option("--certificate", type=_PATH, help="PEM: serve by TLS.")
@click.option("--key", type=_PATH, help="PEM: key of --certificate.")
@click.option("--alarms", type=_PATH, help="TOML: limits, and where notices go.")
def console(name_servers: str | None, **given: Any) -> None:
    """Show a cluster in a browser: brokers, topics, groups, messages, dead letters, failover; raise alarms.

    \b
    Example: rocketpy console -n 127.0.0.1:9876
    """

    def serve() -> int:
        from rocketpy.admin.admin import Admin
        from rocketpy.console.server import run_console
        from rocketpy.console.settings import ConsoleSettings
        from rocketpy.logs import FORMAT_VARIABLE, set_up_logging

        security = security_settings({name: given.pop(name) for name in SHARED})
        settings = ConsoleSettings(**given)
        set_up_logging("INFO", os.environ.get(FORMAT_VARIABLE, "text"))
        logging.getLogger().setLevel("INFO")  # a format of the environment has been set before
        options = {"tls": security.tls_options(), "credentials": tool_credentials(security)}
        return run_console(settings, Admin, name_servers=name_servers or "", **options)

    sys.exit(exit_status(serve))
