"""Properties in environment variables, as containers set them: `listenPort` is ROCKETPY_LISTEN_PORT.

    brokerIP1           ROCKETPY_BROKER_IP1
    haUseTLS            ROCKETPY_HA_USE_TLS
    tls.server.mode     ROCKETPY_TLS_SERVER_MODE

They are stronger than the file and weaker than the command line. Other variables with this prefix are ignored (builds
and tests have some), but for those that look like a misspelt property.

Short: names of variables, and nothing of what they set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rocketpy.errors import ConfigError

PREFIX = "ROCKETPY_"
SIMILARITY = 0.9  # of a misspelt name, by difflib
_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|\.")


def variable_of(key: str) -> str:
    """Return the variable of a property."""
    return PREFIX + _WORD_END.sub("_", key).upper()


def from_environment(environ: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """Return the properties that variables set: key to text.

    Raises:
        ConfigError: a variable differs in a letter or two from that of a property.
    """
    given = {name for name in environ if name.startswith(PREFIX)}
    if not given:
        return {}
    variables = {variable_of(key): key for key in keys}
    for name in sorted(given - variables.keys()):
        if similar := _similar(name, variables):
            raise ConfigError(f"this variable sets no property; did you mean {similar[0]}?", key=name)
    return {variables[name]: environ[name] for name in sorted(given & variables.keys())}


def _similar(name: str, names: Iterable[str]) -> list[str]:
    import difflib  # late: workers inherit what is imported, and few environments have such a variable

    return difflib.get_close_matches(name, names, n=1, cutoff=SIMILARITY)
