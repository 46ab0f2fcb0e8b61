"""The log of a server: lines on standard error, which services collect and terminals show."""

from __future__ import annotations

import logging
import sys


def set_up_logging(level: str) -> None:
    """Once per server, before workers are forked; they inherit it."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
