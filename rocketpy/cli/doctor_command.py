"""`rocketpy doctor`: options, and which checks each of them asks for.

The checks are in doctor.py, client_checks.py and liveness.py, which are imported when they run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from rocketpy.admin.connection import security_settings, shared_options, tool_credentials
from rocketpy.processes.boot.serving import exit_status

from .settings import default_store


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--live", "is_live", is_flag=True, help="Ask the servers that run here for an answer, and nothing else.")
@click.option("--client", "is_client", is_flag=True, help="Look from a client's side, with NAMESRV_ADDR.")
@click.option("-n", "--namesrvAddr", "name_servers", help="Name servers of a client, host:port;host:port.")
@click.option("-t", "--topic", help="Topic to find.")
@click.option("-g", "--group", help="Consumer group whose members to check.")
@click.option("--cluster", help="Cluster that the client is to use.")
@shared_options(with_environment=True)
@click.option("--store", "store", type=click.Path(file_okay=False), help="Directory of the store to check.")
@click.option(
    "-c",
    "config",
    metavar="FILE",
    help="Configuration of a broker whose ports, replication, accounts, credentials and TLS are to be checked, too.",
)
@click.option(
    "--namesrv",
    metavar="FILE",
    help="Configuration of a name server whose port, accounts and TLS are to be checked, too.",
)
def doctor(
    store: str | None, config: str | None, namesrv: str | None, is_live: bool, is_client: bool, **asked: Any
) -> None:
    """Check whether this machine can run a broker, why a client does not work, or whether servers are alive.

    Checks compiled core, limits, ports and disk; with -c or --namesrv the settings of these files. While a server runs,
    its ports are in use.

    \b
    rocketpy doctor -c /etc/rocketpy/broker.conf          before a broker is started
    rocketpy doctor --client -t Orders -g billing         where a client fails
    rocketpy doctor --live                                for health checks: do the servers that run here answer?

    With --client, -n, -t, -g or --cluster: name servers, addresses of brokers, clocks, disks, accounts, certificates;
    the route and the permissions of a topic; members and subscriptions of a group.

    Exit status: 1 if something in red keeps the broker or the client from working; with --live, if a server does not
    answer, or none runs. A full one, which closes new connections, is alive.
    """
    if is_live:
        from .command_line import SERVER_PROGRAMS
        from .liveness import examine_servers

        sys.exit(examine_servers(SERVER_PROGRAMS))
    if is_client or any(asked[name] for name in ("name_servers", "topic", "group", "cluster")):
        sys.exit(exit_status(lambda: _look_as_client(**asked)))

    def check() -> int:
        from rocketpy.config import load_broker_config, load_namesrv_config

        from .doctor import examine

        of_namesrv = load_namesrv_config(namesrv, environ=os.environ) if namesrv is not None else None
        if config is None:
            return examine(Path(store or default_store()), namesrv=of_namesrv)
        settings = load_broker_config(config, environ=os.environ)
        return examine(Path(store or settings.store.store_path_root_dir), settings, of_namesrv)

    sys.exit(exit_status(check))


def _look_as_client(
    *, name_servers: str | None, topic: str | None, group: str | None, cluster: str | None, **connection: Any
) -> int:
    """Run `doctor` with the account and the TLS of mqadmin."""
    from rocketpy.admin.admin import Admin

    from .client_checks import Question, examine_client

    security = security_settings(connection)
    settings: dict[str, Any] = {"name_servers": name_servers} if name_servers else {}  # else the environment's
    settings |= {"tls": security.tls_options(), "credentials": tool_credentials(security)}
    return examine_client(Admin(**settings), Question(topic, group, cluster))
