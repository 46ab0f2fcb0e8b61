"""Entry points of the commands.

A server has its arguments read in a child process. The library that reads them takes more than a megabyte, which all
workers would inherit and none needs (docs/adr/0041-memory-of-the-tree.md).
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocketpy.errors import RocketError

if TYPE_CHECKING:
    from ..boot.serving import Order

Deliver = Callable[["Order"], None]
SERVERS = ("standalone", "broker", "namesrv")


def rocketpy() -> None:
    """Entry point of `rocketpy`."""
    if sys.argv[1:2] and sys.argv[1] in SERVERS:
        sys.exit(_serve("cli", "rocketpy"))
    from .command_line import cli

    cli(prog_name="rocketpy")


def mqbroker() -> None:
    """Entry point of `mqbroker`."""
    sys.exit(_serve("broker", "mqbroker"))


def mqnamesrv() -> None:
    """Entry point of `mqnamesrv`."""
    sys.exit(_serve("namesrv", "mqnamesrv"))


def mqadmin() -> None:
    """Entry point of `mqadmin`."""
    from rocketpy.admin.cli import main

    sys.exit(int(main(sys.argv[1:]) or 0))


def guarded(command: Callable[[], int]) -> int:
    """Run a command's work; a RocketError becomes its one line. Returns: the exit status."""
    try:
        return command()
    except RocketError as exc:
        print(f"rocketpy: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _serve(command: str, program: str) -> int:
    """Read the arguments and run the server that they ask for; what it imports, it imports in here."""
    order, status = _in_child(lambda deliver: _read_arguments(command, program, deliver))
    if order is None:
        return status  # help was printed, or what is wrong
    from ..boot.quick_start import quick_start

    with quick_start():
        return guarded(order.run)


def _read_arguments(command: str, program: str, deliver: Deliver) -> Any:
    from . import command_line as cli

    return getattr(cli, command)(prog_name=program, obj=deliver)


def _in_child(read: Callable[[Deliver], Any]) -> tuple[Order | None, int]:
    """What a child process delivers, if anything, and its exit status."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(source)
        _end_with(lambda: read(lambda order: _write_all(target, pickle.dumps(order))))
    os.close(target)
    with open(source, "rb") as pipe:
        delivered = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (pickle.loads(delivered) if delivered else None), status if status >= 0 else 128 - status


def _write_all(target: int, data: bytes) -> None:
    with open(target, "wb", closefd=False) as pipe:
        pipe.write(data)


def _end_with(work: Callable[[], Any]) -> None:
    """End this process with the status of `work`; nothing that the parent will do at its exit is done here."""
    status = 1
    try:
        work()
        status = 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else 0 if exc.code is None else 1
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
