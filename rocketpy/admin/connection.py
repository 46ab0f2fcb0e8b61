"""Connection of a command to the servers: options for TLS and credentials become settings of `Admin`.

They stand behind the command or before it, `mqadmin --tls clusterList`; the ones behind it win. The list of commands is
shown without the client, so its modules are imported where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketpy.errors import ConfigError

if TYPE_CHECKING:
    from rocketpy.client.security import SecuritySettings
    from rocketpy.remoting.signature import Credentials

TLS_DETAILS = ("tls_ca", "tls_cert", "tls_key", "tls_insecure")  # each says nothing without --tls
SHARED = ("tls", *TLS_DETAILS, "credentials_file")
_FILE = click.Path(dir_okay=False, path_type=Path)
_SPELLINGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "tls": ("--tls", {"is_flag": True, "help": "Call by TLS."}),
    "tls_ca": ("--tls-ca", {"type": _FILE, "help": "PEM: authorities to trust, if not the system's."}),
    "tls_cert": ("--tls-cert", {"type": _FILE, "help": "PEM: for servers that ask for one."}),
    "tls_key": ("--tls-key", {"type": _FILE, "help": "PEM: key of --tls-cert."}),
    "tls_insecure": ("--tls-insecure", {"is_flag": True, "help": "Trust any server."}),
    "credentials_file": (
        "--credentials",
        {"type": _FILE, "help": "File with accessKey and secretKey.  [environment, or $ROCKETMQ_HOME/conf/tools.yml]"},
    ),
}
_VARIABLES = {name: f"ROCKETMQ_{name.upper()}" for name in ("tls", *TLS_DETAILS)}
_FIELDS = {  # of SecuritySettings: their names in errors
    "tls": "--tls",
    "tls_ca_file": "--tls-ca",
    "tls_cert_file": "--tls-cert",
    "tls_key_file": "--tls-key",
    "tls_verify": "--tls-insecure",
    "credentials_file": "--credentials",
}


def shared_options(*, with_environment: bool) -> Callable[[Any], Any]:
    """Add the options of TLS and credentials.

    Args:
        with_environment: variables of TLS count as given; for the options before the command, which those behind it
            override. `tool_credentials` reads those of credentials.
    """

    def decorate(function: Any) -> Any:
        for name in reversed(SHARED):
            (spelling, settings), variable = _SPELLINGS[name], _VARIABLES.get(name)
            if variable is not None:
                settings = settings | {"help": f"{settings['help']}  [env: {variable}]"}
            envvar = variable if with_environment else None
            function = click.option(spelling, name, default=None, envvar=envvar, **settings)(function)
        return function

    return decorate


def take_settings(ctx: click.Context, options: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """Pop the options for TLS and credentials from a command's options.

    Returns: a function that makes the settings of `Admin`. It raises what is wrong with files.
    Raises:
        UsageError: options of TLS that have no effect.
    """
    root = ctx.find_root()
    own = {name: options.pop(name) for name in SHARED}
    given = {name: root.params.get(name) if own[name] is None else own[name] for name in SHARED}
    said = {
        name
        for name in SHARED
        if own[name] is not None or root.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    security = security_settings(given, said)
    name_servers, timeout_s = options.pop("name_servers") or "", options.pop("timeout")

    def settings() -> dict[str, Any]:
        return {
            "name_servers": name_servers,
            "timeout": timeout_s,
            "tls": security.tls_options(),
            "credentials": tool_credentials(security),
        }

    return settings


def security_settings(given: Mapping[str, Any], said: Collection[str] = TLS_DETAILS) -> SecuritySettings:
    """The settings of these options; details of TLS count only with --tls, unless they are `said`.

    Raises:
        UsageError: an option has no effect, or lacks another one.
    """
    from rocketpy.client.security import KEY_PASSWORD_VARIABLE, SecuritySettings

    details = {name: given[name] for name in TLS_DETAILS if given[name] and (given["tls"] or name in said)}
    try:
        return SecuritySettings(
            tls=bool(given["tls"]),
            tls_ca_file=details.get("tls_ca"),
            tls_cert_file=details.get("tls_cert"),
            tls_key_file=details.get("tls_key"),
            tls_key_password=os.environ.get(KEY_PASSWORD_VARIABLE),
            tls_verify="tls_insecure" not in details,
            credentials_file=given.get("credentials_file"),
            names=_FIELDS,
        )
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def tool_credentials(settings: SecuritySettings) -> Credentials | None:
    """The credentials of --credentials, of the environment, or of $ROCKETMQ_HOME/conf/tools.yml, which may be missing.

    Raises:
        ConfigError: a file cannot be understood. Requests without a signature would only be refused later.
    """
    from rocketpy.acl.credentials import parse_credentials
    from rocketpy.client.security import SecuritySettings

    if settings.credentials_file is not None:
        return settings.credentials()
    account = {**os.environ, _VARIABLES["tls"]: "false"}  # the options have read the variables of TLS
    found = SecuritySettings.from_environment(account).credentials()
    home = os.environ.get("ROCKETMQ_HOME")
    if found is not None or not home:
        return found
    path = Path(home) / "conf" / "tools.yml"
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return parse_credentials(data, str(path))
