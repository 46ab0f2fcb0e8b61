"""From the text of a configuration file, the command line and the environment to frozen, checked settings.

Unlike the reference, which drops what it cannot read and goes on with the default, every mistake is an error that names
the file, the line and the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs

from rocketpy.errors import ConfigError

from . import properties
from .environment import from_environment
from .failover_relations import unreachable_notes
from .machine import Machine, is_concrete, this_machine
from .relations import check_broker, check_namesrv, open_notes, ring_count
from .rocketpy_config import RING_SIZE_MIN, TLS_WORKERS_MAX
from .setting import declared_settings, to_text
from .settings import (
    BrokerSettings,
    NamesrvSettings,
    Note,
    evolve_parts,
    known_settings,
    parse_setting,
    read_as,
    unknown_key,
)
from .tls_config import NOT_IN_TLS_FILE, TlsConfig, TlsMode

BROKER_PORT = 10_911
NAMESRV_PORT = 9_876

_S = TypeVar("_S", BrokerSettings, NamesrvSettings)


def load_broker_config(
    path: str | Path | None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
    machine: Machine | None = None,
) -> BrokerSettings:
    """The settings of a broker.

    Args:
        path: the -c file; None when there is none.
        overrides: Java key to text, from the command line (-n is `namesrvAddr`); stronger than the file.
        environ: NAMESRV_ADDR, ROCKETMQ_HOME and HOME, weaker than the file; ROCKETPY_..., stronger (environment.py).
        defaults: Java key to text, where neither file, environment nor overrides have the key.
    Raises:
        ConfigError: unreadable file, unknown key, a value that is not allowed, or settings that contradict.
    """
    environ = environ or {}
    machine = machine or this_machine()
    loaded = _read(BrokerSettings(path=Path(path) if path else None), path, overrides or {}, environ, defaults or {})
    settings, given = loaded.settings, loaded.given
    port = settings.server.listen_port or BROKER_PORT
    derived = _addresses_and_paths(settings, port, environ, machine)
    derived.update(_workers(settings, given, machine.cores))
    derived.update(_processors(settings, given, machine.cores))
    if "clientCallbackExecutorThreads" not in given:  # exportMetrics and dashboards read the number of CPUs from it
        derived["without_effect", "clientCallbackExecutorThreads"] = machine.cores
    notes = loaded.notes + _capped_workers(settings, loaded, machine.cores)
    if "haListenPort" in given and settings.store.ha_listen_port == port + 1:
        notes = tuple(note for note in notes if note.key != "haListenPort")
    complete = evolve_parts(settings, derived)
    complete = attrs.evolve(
        complete, notes=notes + unreachable_notes(complete, loaded.lines) + open_notes(complete, loaded.lines)
    )
    if "ringSize" not in given:
        complete = _with_rings_that_fit(complete)
    check_broker(complete, loaded.lines)
    return complete


def _addresses_and_paths(
    settings: BrokerSettings, port: int, environ: Mapping[str, str], machine: Machine
) -> dict[tuple[str, str], Any]:
    """Return, by section and field, the settings that follow from port, machine and environment if they are not set."""
    root = settings.store.store_path_root_dir or _home(environ, "storePathRootDir", "store")
    bind = settings.server.bind_address
    ip1 = settings.broker.broker_ip1 or (bind if is_concrete(bind) else machine.detect_address())
    return {
        ("store", "store_path_root_dir"): root,
        ("store", "store_path_commit_log"): settings.store.store_path_commit_log or str(Path(root) / "commitlog"),
        ("store", "ha_listen_port"): port + 1,
        ("server", "listen_port"): port,
        ("broker", "broker_ip1"): ip1,
        ("broker", "broker_ip2"): settings.broker.broker_ip2 or ip1,
        ("broker", "broker_name"): settings.broker.broker_name or machine.host_name,
        ("server", "rocketmq_home"): settings.server.rocketmq_home or environ.get("ROCKETMQ_HOME", ""),
        ("broker", "namesrv_addr"): settings.broker.namesrv_addr or environ.get("NAMESRV_ADDR") or None,
    }


def load_namesrv_config(
    path: str | Path | None,
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
) -> NamesrvSettings:
    """The settings of a name server; arguments and errors as for `load_broker_config`."""
    environ = environ or {}
    machine = machine or this_machine()
    loaded = _read(NamesrvSettings(path=Path(path) if path else None), path, overrides or {}, environ, {})
    settings = loaded.settings
    store_path = str(path) if path else settings.namesrv.config_store_path
    derived: dict[tuple[str, str], Any] = {
        ("namesrv", "kv_config_path"): settings.namesrv.kv_config_path
        or _home(environ, "kvConfigPath", "namesrv/kvConfig.json"),
        ("namesrv", "config_store_path"): store_path or _home(environ, "configStorePath", "namesrv/namesrv.properties"),
        ("server", "rocketmq_home"): settings.server.rocketmq_home or environ.get("ROCKETMQ_HOME", ""),
        ("server", "listen_port"): settings.server.listen_port or NAMESRV_PORT,
    }
    derived.update(_workers(settings, loaded.given, machine.cores))
    complete = evolve_parts(settings, derived)
    complete = attrs.evolve(complete, notes=loaded.notes + open_notes(complete, loaded.lines))
    check_namesrv(complete, loaded.lines)
    return complete


@attrs.frozen
class _Loaded(Generic[_S]):
    settings: _S
    given: frozenset[str]
    lines: Mapping[str, int]
    notes: tuple[Note, ...]


def _read(
    empty: _S,
    path: str | Path | None,
    overrides: Mapping[str, str],
    environ: Mapping[str, str],
    defaults: Mapping[str, str],
) -> _Loaded[_S]:
    """Parse the defaults, the file, the environment and the overrides into `empty`; nothing derived yet."""
    file = Path(path) if path else None
    known = known_settings(empty)
    values: dict[tuple[str, str], Any] = {}
    lines: dict[str, int] = {}
    notes: dict[str, Note] = {}
    given_texts: list[tuple[str, str, int | None]] = [(key, text, None) for key, text in defaults.items()]
    if file:
        given_texts += [(entry.key, entry.value, entry.line) for entry in _entries(file)]
    given_texts += [(key, text, None) for key, text in from_environment(environ, known).items()]
    given_texts += [(key, text, None) for key, text in overrides.items()]
    for name, text, line in given_texts:
        key, where = read_as(name), file if line else None
        if key not in known:
            raise unknown_key(key, known, file=where, line=line)
        lines.pop(key, None)
        if line:
            lines[key] = line
        for part, declared in known[key]:
            value = parse_setting(declared, text.strip() if line is None else text, file=where, line=line)
            values[part, declared.attribute] = value
            if declared.setting.ignored and to_text(value) != to_text(declared.default):
                notes[key] = Note(key, line, f"not honoured: {declared.setting.ignored}")
    given = frozenset(
        declared.setting.key
        for found in known.values()
        for part, declared in found
        if (part, declared.attribute) in values
    )
    return _with_tls_file(_Loaded(evolve_parts(empty, values), given, lines, tuple(notes.values())))


def _with_tls_file(loaded: _Loaded[_S]) -> _Loaded[_S]:
    """The settings with those of tls.config.file, if TLS is on.

    Source: RocketMQ 4.9 `TlsHelper#extractTlsConfigFromFile`: the file overrides what the server was started with.
    """
    tls, values = loaded.settings.tls, dict[tuple[str, str], Any]()
    if tls.tls_server_mode is TlsMode.ENFORCING:
        uses_tls = values["tls", "use_tls"] = tls.use_tls or "useTLS" not in loaded.given
        if isinstance(loaded.settings, BrokerSettings) and "haUseTLS" not in loaded.given:
            values["store", "ha_use_tls"] = uses_tls
    file = Path(tls.tls_config_file)
    is_on = tls.is_served or tls.use_tls
    if is_on and ("tls.config.file" in loaded.given or file.exists()):
        known = {declared.setting.key: declared for declared in declared_settings(TlsConfig)}
        for entry in _entries(file):
            key = read_as(entry.key)
            if key not in known:
                raise unknown_key(key, known, file=file, line=entry.line)
            if key in NOT_IN_TLS_FILE:
                reason = "is not read from this file, as in RocketMQ: set it where the server's other settings are"
                raise ConfigError(reason, file=file, line=entry.line, key=key)
            values["tls", known[key].attribute] = parse_setting(known[key], entry.value, file=file, line=entry.line)
    return attrs.evolve(loaded, settings=evolve_parts(loaded.settings, values))


def _entries(file: Path) -> list[properties.Entry]:
    try:
        text = file.read_bytes().decode("utf-8")
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", file=file) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"is not UTF-8 text at byte {exc.start}", file=file) from exc
    try:
        return properties.parse(text)
    except properties.PropertiesError as exc:
        raise ConfigError(exc.reason, file=file, line=exc.line) from exc


def _home(environ: Mapping[str, str], key: str, below: str) -> str:
    home = environ.get("HOME")
    if not home:
        raise ConfigError(f"the default is ~/{below}, but HOME is not set; set this property", key=key)
    return str(Path(home) / below)


def _workers(
    settings: BrokerSettings | NamesrvSettings, given: frozenset[str], cores: int
) -> dict[tuple[str, str], int]:
    """Worker counts: our own key, else the reference's, else by cores; both spellings then say the same.

    The reference counts threads, we count processes: more of them than cores, asked for by its keys, are not made.
    """
    codecs = min(4, cores // 4)  # a process more pays only where a core is free for it (docs/adr/0075)
    selectors = max(1, codecs)
    if "selectorWorkers" in given:
        selectors = settings.rocketpy.selector_workers
    elif "serverSelectorThreads" in given:
        selectors = min(cores, settings.server.server_selector_threads)
    if "codecWorkers" in given:
        codecs = settings.rocketpy.codec_workers
    elif "serverWorkerThreads" in given:
        codecs = min(cores, settings.server.server_worker_threads)
    tls = settings.rocketpy.tls_workers
    if isinstance(settings, BrokerSettings) and settings.tls.is_served and "tlsWorkers" not in given:
        tls = min(TLS_WORKERS_MAX, max(1, cores // 4))
    return {
        ("rocketpy", "tls_workers"): tls,
        ("rocketpy", "selector_workers"): selectors,
        ("rocketpy", "codec_workers"): codecs,
        ("server", "server_selector_threads"): selectors,
        ("server", "server_worker_threads"): codecs,
    }


def _processors(settings: BrokerSettings, given: frozenset[str], cores: int) -> dict[tuple[str, str], int]:
    """Return the numbers of pull and query workers, with the keys of the reference that they stand for."""
    pulls = settings.rocketpy.pull_workers
    if "pullWorkers" not in given and "pullMessageThreadPoolNums" in given:
        pulls = min(cores, settings.broker.pull_message_thread_pool_nums)
    queries = settings.rocketpy.query_workers
    if "queryWorkers" not in given and "queryMessageThreadPoolNums" in given:
        queries = min(cores, settings.broker.query_message_thread_pool_nums)
    return {
        ("rocketpy", "pull_workers"): pulls,
        ("rocketpy", "query_workers"): queries,
        ("broker", "pull_message_thread_pool_nums"): pulls,
        ("broker", "query_message_thread_pool_nums"): max(1, queries),  # with no query worker the manager is the one
    }


def _capped_workers(settings: BrokerSettings, loaded: _Loaded[BrokerSettings], cores: int) -> tuple[Note, ...]:
    """A note for each thread count of the reference that asks for more processes than there are cores."""
    asked = {
        "serverSelectorThreads": (settings.server.server_selector_threads, "selectorWorkers"),
        "serverWorkerThreads": (settings.server.server_worker_threads, "codecWorkers"),
        "pullMessageThreadPoolNums": (settings.broker.pull_message_thread_pool_nums, "pullWorkers"),
        "queryMessageThreadPoolNums": (settings.broker.query_message_thread_pool_nums, "queryWorkers"),
    }
    return tuple(
        Note(key, loaded.lines.get(key), f"{threads} threads become {cores} processes, one per core; or give {ours}")
        for key, (threads, ours) in asked.items()
        if key in loaded.given and ours not in loaded.given and threads > cores
    )


def _with_rings_that_fit(settings: BrokerSettings) -> BrokerSettings:
    """Halve the default ring size until all rings fit into their share of sharedMemoryMax."""
    size = settings.rocketpy.ring_size
    while size > RING_SIZE_MIN and size * ring_count(settings) > settings.rocketpy.ring_memory_max:
        size //= 2
    return evolve_parts(settings, {("rocketpy", "ring_size"): size})
