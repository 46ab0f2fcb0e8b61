"""The command line of `rocketpy`, `mqbroker` and `mqnamesrv`: options, help, and what each command runs.

Every command ends a mistake of its user with one line that names the thing and the remedy, and exit status 1 (2 for
wrong arguments). What a command needs is imported when it runs, so that `--help` is quick. Commands that serve only
hand on what they are asked to do (`deliver`, the context's object): the server runs in another process (main.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rocketpy import __version__
from rocketpy.errors import RocketError
from rocketpy.processes.boot.serving import Deliver, ServerCommand, exit_status

from .completion import SHELLS, AdminCommand, complete_admin, completion_script
from .late_commands import LateCommands
from .settings import data_directory, default_store, pairs

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_FILE = click.Path(exists=False, dir_okay=False)
_LATE = {
    "bench": ("rocketpy.cli.bench", "bench"),
    "console": ("rocketpy.cli.console", "console"),
    "doctor": ("rocketpy.cli.doctor_command", "doctor"),
    "pipeline": ("rocketpy.cli.pipeline.main", "pipeline"),
}


@click.group(cls=LateCommands, late=_LATE, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="rocketpy")
def cli() -> None:
    """rocketpy: an Apache RocketMQ 4.x compatible message broker.

    \b
    rocketpy standalone                     name server and broker for a first look
    rocketpy admin topicList -n HOST:PORT   administer any RocketMQ cluster
    """


@cli.command()
@click.option(
    "--store", "store", type=click.Path(file_okay=False), help="Directory of the store.  [default: your data directory]"
)
@click.option(
    "--port",
    type=click.IntRange(3, 65534),
    help="Port of the broker. PORT - 2 and PORT + 1 are used as well.  [default: 10911]",
)
@click.option(
    "--namesrv-port", type=click.IntRange(1, 65535), default=9876, show_default=True, help="Port of the name server."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port of the Prometheus endpoint; 0 switches it off.  [default: 5557 or the next free port]",
)
@click.option(
    "--bind",
    help="Address to listen on. Any address but loopback lets other hosts connect.  [default: 127.0.0.1]",
)
@click.option("-c", "--config", type=_FILE, help="Broker configuration file (Java property names).")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a property; overrides the file; may be repeated."
)
@click.pass_obj
def standalone(
    deliver: Deliver,
    store: str | None,
    port: int | None,
    namesrv_port: int,
    metrics_port: int | None,
    bind: str | None,
    config: str | None,
    settings: tuple[str, ...],
) -> None:
    """Run a name server and a broker together, with their own store.

    Options are stronger than --config and variables of the environment (ROCKETPY_LISTEN_PORT), defaults are weaker.

    \b
    Example: rocketpy standalone --store /var/lib/rocketpy --set flushDiskType=SYNC_FLUSH
    """
    given = {
        "storePathRootDir": None if store is None else str(Path(store).absolute()),
        "listenPort": port,
        "bindAddress": bind,
        "metricsPort": metrics_port,
    }
    overrides = {key: str(value) for key, value in given.items() if value is not None} | pairs(settings)
    defaults = {}
    if "storePathRootDir" not in overrides:
        defaults["storePathRootDir"] = str(default_store().absolute())  # which needs a home directory
    arguments = {"config": config, "overrides": overrides, "defaults": defaults, "namesrv_port": namesrv_port}
    deliver(ServerCommand("standalone", arguments))


@cli.command("broker", context_settings=_CONTEXT)
@click.option("-c", "--configFile", "config", type=_FILE, help="Broker configuration file (Java property names).")
@click.option(
    "-n",
    "--namesrvAddr",
    "namesrv",
    metavar="HOST:PORT;...",
    help="Name servers. Overrides the file and NAMESRV_ADDR.",
)
@click.option("-p", "--printConfigItem", "print_all", is_flag=True, help="Print every property and exit.")
@click.option(
    "-m", "--printImportantConfig", "print_important", is_flag=True, help="Print the important properties and exit."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a property; overrides the file; may be repeated."
)
@click.pass_obj
def broker(
    deliver: Deliver,
    config: str | None,
    namesrv: str | None,
    print_all: bool,
    print_important: bool,
    settings: tuple[str, ...],
) -> None:
    """Run a broker.

    \b
    Example: mqbroker -c broker.conf -n "10.0.0.1:9876;10.0.0.2:9876"
    """
    overrides = ({"namesrvAddr": namesrv} if namesrv else {}) | pairs(settings)
    to_print = "all" if print_all else "important" if print_important else None
    deliver(ServerCommand("broker", {"config": config, "overrides": overrides, "to_print": to_print}))


@cli.command("namesrv", context_settings=_CONTEXT)
@click.option("-c", "--configFile", "config", type=_FILE, help="Name server configuration file (Java property names).")
@click.option("-n", "--namesrvAddr", "ignored", hidden=True)
@click.option("-p", "--printConfigItem", "print_all", is_flag=True, help="Print every property and exit.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a property; overrides the file; may be repeated."
)
@click.pass_obj
def namesrv(
    deliver: Deliver, config: str | None, ignored: str | None, print_all: bool, settings: tuple[str, ...]
) -> None:
    """Run a name server.

    \b
    Example: mqnamesrv --set listenPort=9876 --set bindAddress=0.0.0.0
    """
    deliver(
        ServerCommand(
            "namesrv", {"config": config, "overrides": pairs(settings), "to_print": "all" if print_all else None}
        )
    )


SERVER_PROGRAMS = {"rocketpy": cli, "mqbroker": broker, "mqnamesrv": namesrv}


@cli.command(
    "admin", cls=AdminCommand, context_settings=_CONTEXT | {"ignore_unknown_options": True}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_admin)
def admin(arguments: tuple[str, ...]) -> None:
    """Administer a cluster; the same as mqadmin. `rocketpy admin --help` lists its commands."""
    from rocketpy.admin.cli import main

    sys.exit(int(main(list(arguments)) or 0))


@cli.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what a shell needs to complete the commands of rocketpy, mqadmin, mqbroker and mqnamesrv.

    \b
    eval "$(rocketpy completion bash)"     in ~/.bashrc
    eval "$(rocketpy completion zsh)"      in ~/.zshrc, after compinit
    rocketpy completion fish | source      in ~/.config/fish/config.fish
    """
    from rocketpy.admin.cli import mqadmin

    click.echo(completion_script(shell, SERVER_PROGRAMS | {"mqadmin": mqadmin}))


@cli.group()
def store() -> None:
    """Inspect or copy a store, also of a Java broker.

    Only set-aside changes it.

    \b
    Exit status: 0 the store is sound, 1 it is damaged, 2 it cannot be read.
    A running broker's store can be inspected too; what it writes meanwhile is left out.
    """


_DIRECTORY = click.argument("directory", type=click.Path())
_COMMITLOG = click.option(
    "--commitlog", default="", help="Directory of the CommitLog, if it is not DIRECTORY/commitlog."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_SLOTS = click.option(
    "--hash-slots",
    "slots",
    type=click.IntRange(1),
    help="maxHashSlotNum, if it cannot be derived from the size of an index file.",
)


def _look(command: Callable[[], int]) -> int:
    """Return the exit status of a look at a store: a store that cannot be read is told from a damaged one."""
    try:
        return command()
    except (RocketError, OSError) as exc:
        from rocketpy.admin.output import echo

        echo(f"rocketpy: {exc}", err=True)
        return 2
    except KeyboardInterrupt:
        return 130


@store.command("dump")
@_DIRECTORY
@_COMMITLOG
@click.option(
    "--show",
    type=click.Choice(["records", "units", "index", "state"]),
    help="The part of the store to print.  [default: records, or units if --queue is given]",
)
@click.option("--topic", help="Print this topic only.")
@click.option("--queue", type=click.IntRange(0), help="Print this queue only.")
@click.option(
    "--from",
    "--start",
    "start",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Begin at this log offset (records), queue offset (units) or number (index).",
)
@click.option(
    "--count", type=click.IntRange(0), default=100, show_default=True, help="Largest number of lines to print."
)
@_JSON
@_SLOTS
def store_dump(directory: str, commitlog: str, **wanted: Any) -> None:
    """Print records, consume queue units, index entries or the state of the store, one per line.

    \b
    rocketpy store dump DIR --topic T --count 10        first messages of a topic
    rocketpy store dump DIR --topic T --queue 0         units of a queue
    rocketpy store dump DIR --from 1073741824 --json    records of the second log file on
    rocketpy store dump DIR --show state                checkpoint, abort, lock, control
    """
    from .store_tools import Selection, dump

    wanted["queue_id"] = wanted.pop("queue")
    sys.exit(_look(lambda: dump(Path(directory), Selection(**wanted), commitlog)))


@store.command("verify")
@_DIRECTORY
@_COMMITLOG
@_JSON
@_SLOTS
def store_verify(directory: str, commitlog: str, as_json: bool, slots: int | None) -> None:
    """Check every record, unit and index entry; the exit status is 1 if anything is damaged.

    Each finding names the file and the byte. Notes are no damage: what a killed broker left half done, and what the
    next start repairs.
    """
    from .store_tools import verify

    sys.exit(_look(lambda: verify(Path(directory), as_json=as_json, slots=slots, commitlog=commitlog)))


@store.command("stats")
@_DIRECTORY
@_COMMITLOG
@_JSON
def store_stats(directory: str, commitlog: str, as_json: bool) -> None:
    """Print sizes, offsets, times, state, and the number of messages by topic."""
    from .store_tools import stats

    sys.exit(_look(lambda: stats(Path(directory), as_json=as_json, commitlog=commitlog)))


@store.command("backup")
@_DIRECTORY
@click.argument("target", type=click.Path(file_okay=False))
@_COMMITLOG
@click.option("--keep", type=click.IntRange(1), help="Remove older complete copies, until this many are left.")
@_SLOTS
def store_backup(directory: str, target: str, commitlog: str, keep: int | None, slots: int | None) -> None:
    """Copy a store, also of a running broker, to TARGET/TIME, and check the copy.

    The copy has every message that was acknowledged before it began, and opens like a store after a loss of power.
    Later copies to the same TARGET share its full log files, and an interrupted one is continued. Properties, keys
    and accounts are not in it.

    \b
    Example: rocketpy store backup /var/lib/rocketpy/store /backup --keep 7
    """
    from .store_tools import backup

    sys.exit(_look(lambda: backup(Path(directory), Path(target), keep=keep, slots=slots, commitlog=commitlog)))


@store.command("set-aside")
@click.option("-c", "--configFile", "config", type=_FILE, required=True, help="File of the broker.")
def store_set_aside(config: str) -> None:
    """Move the store of a stopped member of a group away, so that its broker begins with an empty one.

    For a member that has halted because its log differs from its master's. Nothing is deleted: the store is in the
    directory aside-TIME of storePathRootDir afterwards. It is refused while the broker runs, and for the master, or
    the only member in sync.

    \b
    Example: rocketpy store set-aside -c /etc/rocketpy/broker.conf
    """

    def run() -> int:
        from rocketpy.config import load_broker_config
        from rocketpy.processes.member import require_client

        require_client()
        from .set_aside import set_aside

        click.echo(set_aside(load_broker_config(config, environ=os.environ)))
        return 0

    sys.exit(exit_status(run))


@cli.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--store", "store", type=click.Path(file_okay=False), help="Directory for all stores and logs.  [default: yours]"
)
@click.option(
    "--port",
    type=click.IntRange(3, 65000),
    help="listenPort of the first broker; each further one is 10 above.  [default: as in the files]",
)
@click.option(
    "--namesrv-port", type=click.IntRange(1, 65535), default=9876, show_default=True, help="Port of the name server."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a property of every broker; may be repeated."
)
def cluster(directory: str, store: str | None, port: int | None, namesrv_port: int, settings: tuple[str, ...]) -> None:
    """Try a cluster out on this machine.

    Runs a name server, and a broker for each *.conf in DIRECTORY.

    \b
    Example: rocketpy cluster deploy/clusters/2m-2s-sync
    """
    from .cluster import plan, run_cluster

    files, overrides = Path(directory), pairs(settings)
    root = Path(store) if store else data_directory() / "rocketpy-clusters" / files.resolve().name
    sys.exit(exit_status(lambda: run_cluster(plan(files, root.absolute(), namesrv_port, port, overrides), click.echo)))
