"""The exit status of a command, and one line for an error. No library for arguments: main.py imports this."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rocketpy.errors import RocketError


def exit_status(command: Callable[[], int]) -> int:
    """Run a command; a RocketError is printed as one line."""
    try:
        return command()
    except RocketError as exc:
        print(f"rocketpy: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
