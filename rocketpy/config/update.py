"""Changes of settings while the server runs (codes 25 and 318), and the file that keeps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

from rocketpy.atomic_file import write_atomically
from rocketpy.codes import ResponseCode
from rocketpy.errors import ConfigError, RequestRefused

from . import properties
from .relations import check_broker, check_namesrv
from .setting import Effect
from .settings import BrokerSettings, NamesrvSettings, evolve_parts, known_settings, parse_setting, read_as, unknown_key

BROKER_BLACK_LIST = frozenset({"brokerConfigPath", "rocketmqHome", "configBlackList"})
NAMESRV_BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_S = TypeVar("_S", BrokerSettings, NamesrvSettings)


@attrs.frozen
class Update(Generic[_S]):
    """The settings to use from now on, and what the file is to say."""

    settings: _S
    changes: Mapping[str, str]  # everything asked for, by the keys that are declared: for the file
    at_once: tuple[str, ...]
    at_restart: tuple[str, ...]
    without_effect: tuple[str, ...]


def update_broker(settings: BrokerSettings, changes: Mapping[str, str]) -> Update[BrokerSettings]:
    """`settings` with `changes` (Java key to text) applied as far as a running broker can.

    What takes effect at restart only is checked like the rest, and kept for the file.

    Raises:
        RequestRefused: 16, a black-listed key, flushDiskType or brokerRole.
        ConfigError: unknown key, or a value that is not allowed.
    """
    black_list = BROKER_BLACK_LIST | _black_list(settings.broker.config_black_list)
    return _update(settings, changes, black_list, check_broker)


def update_namesrv(settings: NamesrvSettings, changes: Mapping[str, str]) -> Update[NamesrvSettings]:
    """As `update_broker`, for a name server."""
    black_list = NAMESRV_BLACK_LIST | _black_list(settings.namesrv.config_black_list)
    return _update(settings, changes, black_list, check_namesrv)


def _black_list(text: str) -> frozenset[str]:
    return frozenset(read_as(key.strip()) for key in text.split(";") if key.strip())


def _update(
    settings: _S, changes: Mapping[str, str], black_list: frozenset[str], check: Callable[[_S, Mapping[str, int]], None]
) -> Update[_S]:
    changes = {read_as(name): text for name, text in changes.items()}
    if black_list & changes.keys():
        raise RequestRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    known = known_settings(settings)
    now: dict[tuple[str, str], Any] = {}
    later: dict[tuple[str, str], Any] = {}
    keys: dict[Effect, list[str]] = {effect: [] for effect in Effect}
    for key, text in changes.items():
        if key not in known:
            raise unknown_key(key, known, file=None, line=None)
        if _CONTROL.search(text):
            raise ConfigError("a value may not hold line ends or control characters", key=key)
        effects = {declared.setting.effect for _, declared in known[key]}
        if Effect.REFUSED in effects:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"{key} cannot be changed while the server runs; set it in the file"
            )
        keys[effects.pop() if len(effects) == 1 else Effect.AT_RESTART].append(key)
        for part, declared in known[key]:
            value = parse_setting(declared, text, file=None, line=None)
            later[part, declared.attribute] = value
            if declared.setting.effect in (Effect.AT_ONCE, Effect.NONE):
                now[part, declared.attribute] = value
    next_start = {**settings.next_start, **{place: value for place, value in later.items() if place not in now}}
    running = evolve_parts(settings, now)
    check(running, {})
    check(evolve_parts(running, next_start), {})
    return Update(
        attrs.evolve(running, next_start=next_start),
        changes,
        at_once=tuple(keys[Effect.AT_ONCE]),
        at_restart=tuple(keys[Effect.AT_RESTART]),
        without_effect=tuple(keys[Effect.NONE]),
    )


def change_file(path: Path, changes: Mapping[str, str]) -> None:
    """Give the keys of `changes` their new values in the file that a running server keeps its changed settings in.

    It is read as it is, changed in place and replaced whole; a file that is not there begins empty. Waits for the disk.

    Raises:
        ConfigError: the file cannot be read or written, or somebody has damaged it; it is as it was.
    """
    try:
        before = path.read_bytes().decode("utf-8") if path.exists() else ""
        write_atomically(path, properties.replace(before, changes, read_as).encode())
    except OSError as exc:
        raise ConfigError(f"cannot be changed: {exc}", file=path) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"is not UTF-8 text at byte {exc.start}", file=path) from exc
    except properties.PropertiesError as exc:
        raise ConfigError(exc.reason, file=path, line=exc.line) from exc
