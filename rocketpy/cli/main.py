"""Entry points of the commands.

The arguments of a server are parsed in a child process. All workers would inherit the library for that, and none needs
it: 3 % of idle memory. Meanwhile this process imports the modules of the server: 5 % of the time of a start
(processes/boot/memory.py).

attrs leaves the text of the methods that it writes in `linecache`, for debuggers. All workers would inherit that, too.
"""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import pickle
import select
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rocketpy.logs import set_up_logging_of_command

if TYPE_CHECKING:
    from rocketpy.processes.boot.serving import Deliver, ServerCommand

SERVERS = ("standalone", "broker", "namesrv")
LARGE_BYTES = 131_072  # malloc's own limit, before it raises it
INFORMATION = {"-h", "--help", "--version"}  # arguments that start no server
# In the order of their dependencies: what is imported between two looks at the child should be little.
IMPORTED_MEANWHILE = {
    False: (
        "attrs",
        "rocketpy.config",
        "rocketpy.native.core",
        "trio",
        "rocketpy.processes.boot.broker",
        "rocketpy.processes.boot.worker_list",
    ),
    True: ("attrs", "rocketpy.config", "trio", "rocketpy.processes.boot.namesrv"),
}


def rocketpy() -> None:
    """Entry point of `rocketpy`."""
    if sys.argv[1:2] and sys.argv[1] in SERVERS:
        sys.exit(_serve("cli", "rocketpy"))
    from .command_line import cli

    set_up_logging_of_command()
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

    set_up_logging_of_command()
    sys.exit(int(main(sys.argv[1:]) or 0))


def _serve(command: str, program: str) -> int:
    """Parse the arguments and run the server; its modules are imported inside of this function."""
    linecache.cache = WithoutGeneratedText()
    child = _Child(lambda deliver: _read_arguments(command, program, deliver))
    if not INFORMATION & set(sys.argv):
        is_alone = command == "namesrv" or sys.argv[1:2] == ["namesrv"]
        if not is_alone:
            keep_large_blocks_apart()
        child.import_meanwhile(IMPORTED_MEANWHILE[is_alone])
    server_command, status = child.wait()
    from rocketpy.processes.boot.serving import exit_status, serve

    return exit_status(lambda: serve(server_command, status))


def keep_large_blocks_apart() -> None:
    """From now on a large block has a memory mapping of its own, however many were freed before.

    In the heap it would leave a hole. A worker's table of the core that fits into the hole is zeroed as a whole, and so
    takes memory as a whole, while one with a mapping takes memory as it is used: 3 % of idle memory (boot/memory.py).
    """
    with contextlib.suppress(ImportError):  # reported later, where the core is needed
        from rocketpy.native.core import lib

        lib.rp_process_memory_map_blocks(LARGE_BYTES)


class WithoutGeneratedText(dict[str, Any]):
    """A cache of linecache for files alone: those are assigned, the text that attrs wrote comes by `setdefault`."""

    def setdefault(self, name: str, text: Any = None) -> Any:
        return text


def _read_arguments(command: str, program: str, deliver: Deliver) -> Any:
    from . import command_line as cli

    return getattr(cli, command)(prog_name=program, obj=deliver)


class _Child:
    """A child process that parses the arguments and returns them as a ServerCommand."""

    def __init__(self, read: Callable[[Deliver], Any]) -> None:
        self._source, target = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._source)
            _end_with(lambda: read(lambda parsed: _write_all(target, pickle.dumps(parsed))))
        os.close(target)

    def import_meanwhile(self, names: Sequence[str]) -> None:
        """Import modules until the child has answered or ended. A failed import is reported later, where the module is
        needed."""
        poller = select.poll()
        poller.register(self._source, select.POLLIN)
        for name in names:
            if poller.poll(0):
                return
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    def wait(self) -> tuple[ServerCommand | None, int]:
        """Return its ServerCommand, if any, and its exit status."""
        with open(self._source, "rb") as pipe:
            delivered = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return (pickle.loads(delivered) if delivered else None), status if status >= 0 else 128 - status


def _write_all(target: int, data: bytes) -> None:
    with open(target, "wb", closefd=False) as pipe:
        pipe.write(data)


def _end_with(work: Callable[[], Any]) -> None:
    """End this process with the status of `work`, without the exit handlers of the parent."""
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
