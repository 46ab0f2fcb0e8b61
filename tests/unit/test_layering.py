"""Arrows point down only: which package may import which, held as data.

A package imports what its row lists, the ground modules, and itself; so does a room that has a row of its own.
`TYPE_CHECKING` imports count like any other: a type is a dependency too.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rules import ROOT, c_files, hold, nodes_of, text_of

PACKAGE = ROOT / "rocketpy"
CSRC = PACKAGE.parent / "csrc"
GROUND = {"atomic_file", "codes", "errors", "faults", "file_systems", "logs", "networks", "values"}
ALLOWED: dict[str, set[str]] = {
    "aio": set(),
    "message": set(),
    "filter": {"message"},
    "config": set(),
    "native": set(),
    "failover": set(),
    "failover.rules": {"message"},  # message.numbers
    "failover.member_block": {"native"},
    "failover.etcd": {"failover.rules", "message", "config"},
    "remoting": {"message"},
    "acl": {"remoting", "message", "config"},
    "store": {"message", "config", "native"},
    "tls": {"config"},  # contexts, certificates and bytes; no sockets
    "transport.sockets": {"remoting"},
    "transport": {"aio", "tls", "transport.sockets", "remoting", "message"},  # message.host: addresses as text
    "reactor": {"tls", "transport.sockets", "remoting", "message", "config", "native", "failover.member_block"},
    "replication": {
        *("reactor", "store", "remoting", "failover.rules", "failover.member_block", "message", "config", "native"),
        "tls",  # for requests to the master
    },
    "namesrv": {"acl", "transport", "tls", "remoting", "message", "config"},
    "broker.fast_path": {"acl", "reactor", "remoting", "message", "config", "native"},
    "broker": {"acl", "store", "transport", "remoting", "filter", "message", "config"},
    "client": {"acl", "aio", "transport", "tls", "remoting", "filter", "message", "config"},
    "admin": {"acl", "aio", "client", "failover.etcd", "failover.rules", "remoting", "message", "config"},
    "bench": {"admin", "aio", "client", "remoting", "message"},
    "console": {"acl", "admin", "aio", "client", "config", "message", "remoting", "tls"},
    "spark": {"client", "store", "filter", "message", "metrics", "config", "native", "remoting"},
    "metrics": set(),
    # where the parts of a server meet: all but what clients and tools are made of
    "processes": {
        *("failover.etcd", "failover.member_block", "failover.rules"),
        *("acl", "broker", "broker.fast_path", "config", "message", "metrics", "namesrv", "native", "reactor"),
        *("remoting", "replication", "store", "tls", "transport"),
    },
}
# Inside a package: its rooms from the bottom up. A room imports those before it. Names are modules or folders.
ROOMS: dict[str, tuple[set[str], ...]] = {
    "client": (
        {"security", "options", "messages", "results", "allocation", "hooks"},
        {"cluster"},
        {"sending"},
        {"tracing"},
        {"consuming"},
        {"producer", "push_consumer", "pull_consumer"},
        {"transaction_producer"},
        {"sync"},
        {"typed"},
    ),
    "broker": (
        {"clock", "current_settings", "files", "property_edits", "replies", "store_api"},
        {"access"},
        {"memory"},
        {"managers"},
        {"delays", "registration", "transactions"},
        {"sending", "services"},
        {"pulling", "runtime_info", "slaves"},
        {"processors", "topics_of_log"},
        {"broker"},
    ),
    "store": (
        {"clocks", "files"},
        {"replaced_file"},
        {"control_block"},
        {"timers"},
        {"formats"},
        {"dispatch"},
        {"reading"},
        {"recovery"},
        {"services"},
        {"inspection"},
        {"backup"},
        {"rebuilding"},
    ),
    "failover": ({"rules"}, {"etcd"}),
    "processes": ({"member"}, {"workers"}, {"boot"}),
}
# The rooms of csrc/ from the bottom up: a file includes headers of its own room and of those before it.
C_ROOMS = (
    *("base", "wire", "ipc"),
    *("store/control", "store/log", "store/index", "store/queues", "store/filters", "store/recovery"),
    *("store/timers", "store/transactions", "store/dispatch"),
    "replication",
    *("workers/shared", "workers/codec", "workers/selector", "workers/send", "workers/pull"),
    "arrow",
    "python",
)
TOP = {"cli", "__main__"}  # may import all, is imported by none
GROUND_ALLOWED: dict[str, set[str]] = {
    "atomic_file": set(),
    "codes": set(),
    "errors": {"codes"},
    "faults": {"logs"},
    "file_systems": set(),
    "logs": set(),
    "networks": set(),
    "values": set(),
    "__init__": set(),
}

# Whoever else names these has gone round the seam. Places are modules or packages, dotted, below rocketpy.
ONLY_IN: dict[str, set[str]] = {
    "asyncio": {"aio.on_asyncio", "transport.asyncio_stream", "bench"},
    "pyspark": {"spark"},
    "pyarrow": {"spark"},
    "deltalake": {"spark"},
    "pyiceberg": {"spark"},
    "sqlalchemy": {"spark"},  # the errors of pyiceberg's SQL catalog
    "matplotlib": {"spark.jobs.plots", "bench.plots"},
    "fastavro": {"spark.bodies.avro"},
    "prometheus_client": {"metrics", "client.hooks.prometheus"},
    "opentelemetry": {"client.hooks.opentelemetry"},
    "lark": {"filter.grammar"},
    "cryptography": {"tls.throw_away"},
    "yaml": {"acl.document", "bench.scenario"},
    "httpcore": {"failover.etcd.gateway"},
    "starlette": {"console"},
    "uvicorn": {"console.server"},
    "jinja2": {"console.rendering"},
    "cattrs": {"client.typed.serializers"},
    "pydantic": {"client.typed.serializers"},
    "sqlite3": {"client.typed.sqlite_ids"},
    "rocketpy.native._rocketpy": {"native.core"},
    "cffi": {"bench.driver"},  # the load driver
    "hdrh": {"bench"},
    "nats": {"bench.clients.nats"},
    "aiokafka": {"bench.clients.kafka"},
    "rocketpy.native.core": {
        *("broker.fast_path", "failover.member_block", "native", "processes", "reactor"),
        *("replication", "spark", "store"),
    },
}
WITHOUT_TRIO = {
    "atomic_file",
    "codes",
    "errors",
    "faults",
    "logs",
    "values",
    "message",
    "filter",
    "config",
    "native",
    "failover.rules",
    "failover.member_block",
    "remoting",
    "acl",
    "store",
    "metrics",
    "tls",
}
ADDRESS_TEXT = {"AF_INET", "AF_INET6", "inet_pton", "inet_ntop", "inet_aton", "inet_ntoa"}  # text to bytes, no socket
WITHOUT_SOCKETS = GROUND | {
    "message",
    "filter",
    "failover.rules",
    "failover.member_block",
    "native",
    "remoting",
    "acl",
    "store",
    "tls",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    """`store.flush` for rocketpy/store/flush.py, `store` for its package, `` for the root package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, root: Path | None = None) -> Iterator[str]:
    """Absolute dotted names that a module imports, with the names taken from a package of ours spelled out.

    `root` holds its top package; without it the module is one of rocketpy.
    """
    package = [*path.relative_to(root).parts[:-1]] if root else ["rocketpy", *path.relative_to(PACKAGE).parts[:-1]]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def layer_of(name: str) -> str:
    """Return the row of ALLOWED that a module below rocketpy belongs to: its room, if that has a row of its own, or its
    package. `__init__` for the root package itself."""
    room = ".".join(name.split(".")[:2])
    return room if room in ALLOWED else name.split(".")[0] or "__init__"


def our_layers(path: Path) -> set[str]:
    ours = (name.partition(".")[2] for name in imports_of(path) if name.split(".")[0] == "rocketpy")
    return {layer_of(name) for name in ours if not name.startswith("__")} - {"__init__"}


def names_of_socket(path: Path) -> set[str]:
    """What a module uses of the standard library's `socket`."""
    used = {
        node.attr
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "socket"
    }
    return used | {name.split(".")[1] for name in imports_of(path) if name.startswith("socket.")}


def is_within(name: str, place: str) -> bool:
    return name == place or name.startswith(place + ".")


def test_arrows_point_down() -> None:
    def excess(path: Path) -> set[str]:
        layer = layer_of(dotted(path))
        if layer in TOP:
            return set()
        allowed = GROUND_ALLOWED[layer] if layer in GROUND_ALLOWED else ALLOWED[layer] | GROUND
        return our_layers(path) - allowed - {layer}

    hold(
        (f"{dotted(path)} imports {', '.join(sorted(excess(path)))}" for path in modules() if excess(path)),
        "move the code to the layer that may, or pass a value in; ALLOWED has the table",
    )


def test_rooms_import_only_rooms_below() -> None:
    def above(path: Path) -> set[str]:
        package, _, inner = dotted(path).partition(".")
        if package not in ROOMS or not inner:
            return set()
        levels = {name: level for level, names in enumerate(ROOMS[package]) for name in names}
        prefix = f"rocketpy.{package}."
        used = {name.removeprefix(prefix).split(".")[0] for name in imports_of(path) if name.startswith(prefix)}
        return {name for name in used & levels.keys() if levels[name] > levels[inner.split(".")[0]]}

    hold(
        (f"{dotted(path)} imports {', '.join(sorted(above(path)))}" for path in modules() if above(path)),
        "these are rooms above it: move the code up, or pass a value down; ROOMS has the table",
    )


def test_foreign_packages_stay_behind_their_seam() -> None:
    hold(
        (
            f"{dotted(path)} imports {imported}: only {', '.join(sorted(places)) or 'nobody'} may"
            for path in modules()
            for imported in imports_of(path)
            for guarded, places in ONLY_IN.items()
            if is_within(imported, guarded)
            and layer_of(dotted(path)) not in TOP
            and not any(is_within(dotted(path), place) for place in places)
        ),
        "use the module that wraps the package",
    )


def test_lower_layers_know_neither_trio_nor_sockets() -> None:
    found = []
    for path in modules():
        layer = layer_of(dotted(path))
        loops = {imported.split(".")[0] for imported in imports_of(path)} & {"trio", "asyncio"}
        if layer in WITHOUT_TRIO and loops:
            found.append(f"{dotted(path)} imports {', '.join(sorted(loops))}")
        if layer in WITHOUT_SOCKETS and not names_of_socket(path) <= ADDRESS_TEXT:
            found.append(f"{dotted(path)} uses sockets")
    hold(found, "bytes and values only: move what waits or connects to transport or above")


def module_names(root: Path) -> dict[str, Path]:
    """The modules of rocketpy/, bench/ and tests/support/ by dotted name; a package is its `__init__`."""
    names = {}
    for path in sorted(path for tree in ("rocketpy", "bench", "tests/support") for path in (root / tree).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def module_imports(root: Path) -> dict[str, set[str]]:
    """Which of these modules each imports: at its top, in functions, and under TYPE_CHECKING. A module that needs a
    type of another cannot be understood without it either, and an import in a function hides a circle, not more."""
    names = module_names(root)
    imports = {}
    for name, path in names.items():
        spelled = set(imports_of(path, root))
        # `from a import b`: the module a.b if there is one, otherwise a
        targets = {target if target in names else target.rpartition(".")[0] for target in spelled}
        imports[name] = targets & names.keys() - {name}
    return imports


def test_modules_import_each_other_in_no_circle() -> None:
    imports = module_imports(PACKAGE.parent)
    assert sum(map(len, imports.values())) > 1000, "the reader of imports finds no imports"
    assert not on_a_circle(imports), (
        f"move what two of these need into a third, lower module: {sorted(on_a_circle(imports))}"
    )


def test_a_circle_of_modules_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "rocketpy"
    package.mkdir()
    (package / "__init__.py").write_text("from .d import e\n")
    (package / "a.py").write_text("from . import b\n")
    (package / "b.py").write_text("def f():\n    from rocketpy.c import g\n")
    (package / "c.py").write_text("if TYPE_CHECKING:\n    import rocketpy.a\n")
    (package / "d.py").write_text("from .a import x\n")
    assert module_imports(tmp_path)["rocketpy"] == {"rocketpy.d"}
    assert on_a_circle(module_imports(tmp_path)) == {"rocketpy.a", "rocketpy.b", "rocketpy.c"}
    (package / "c.py").unlink()
    assert not on_a_circle(module_imports(tmp_path))


def c_includes(path: Path) -> set[str]:
    """Headers of ours that a C file includes, as `room/name.h`."""
    return set(re.findall(r'^#include "([\w/.]+)"', text_of(path), re.MULTILINE))


def test_c_includes_point_down() -> None:
    found = []
    for path in c_files():
        room = str(path.relative_to(CSRC).parent)
        assert room in C_ROOMS, f"{path.name} lies in no room: name it in C_ROOMS"
        allowed = C_ROOMS[: C_ROOMS.index(room) + 1]
        for name in sorted(c_includes(path)):
            if not (CSRC / name).exists() or name.rpartition("/")[0] not in allowed:
                found.append(f"{path.relative_to(CSRC)} includes {name}")
    hold(found, "name a header with its room, and include rooms below only (C_ROOMS)")


def test_what_is_private_stays_in_its_room() -> None:
    found, private = [], 0
    for path in c_files():
        for name in sorted(name for name in c_includes(path) if name.endswith("_private.h")):
            private += 1
            if (CSRC / name).parent != path.parent:
                found.append(f"{path.relative_to(CSRC)} includes {name}")
    assert private > 10, "the rule finds no private headers"
    hold(found, "include the public header of that room, and give it what is missing")


def test_c_headers_form_no_circle() -> None:
    remaining = {str(path.relative_to(CSRC)): c_includes(path) for path in c_files() if path.suffix == ".h"}
    while remaining:
        ready = [name for name, includes in remaining.items() if not includes & remaining.keys()]
        assert ready, f"move what two of these headers need into a third: {sorted(remaining)}"
        for name in ready:
            del remaining[name]


def c_calls(texts: dict[str, str]) -> dict[str, set[str]]:
    """Which C files each C file calls: by the names of functions that are not static."""
    code = {name: re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) for name, text in texts.items()}
    owner = {
        function: name
        for name, text in code.items()
        for function in re.findall(r"^(?!static\b)[a-z][\w *]*?\b(rp_\w+)\([^;{}]*\)\s*\{", text, re.MULTILINE)
    }
    return {
        name: {owner[called] for called in re.findall(r"\b(rp_\w+)\(", text) if owner.get(called, name) != name}
        for name, text in code.items()
    }


def on_a_circle(calls: dict[str, set[str]]) -> set[str]:
    """Files that call (or modules that import) each other, directly or through others."""
    remaining = set(calls)
    while ends := {
        name
        for name in remaining
        if not calls[name] & remaining or not any(name in calls[other] for other in remaining)
    }:
        remaining -= ends
    return remaining


def test_c_calls_form_no_circle() -> None:
    texts = {str(path.relative_to(CSRC)): text_of(path) for path in c_files() if path.suffix == ".c"}
    calls = c_calls(texts)
    assert sum(map(len, calls.values())) > 100, "the reader of calls finds no calls"
    assert not on_a_circle(calls), f"move what two of these need into a third, lower file: {sorted(on_a_circle(calls))}"


def test_a_circle_of_calls_is_seen() -> None:
    texts = {
        "a.c": "int rp_a(int x) {\n    return rp_b(x); /* rp_c() */\n}\n",
        "b.c": "static int helper(void) { return 0; }\nint rp_b(\n    int x) {\n    return rp_c(x);\n}\n",
        "c.c": "int rp_c(int x) { return x ? rp_a(x) : 0; }\n",
        "d.c": "int rp_d(void) { return rp_a(1); }\n",
        "e.c": "int rp_e(void) { return rp_d(); }\n",
    }
    assert c_calls(texts)["a.c"] == {"b.c"}
    assert on_a_circle(c_calls(texts)) == {"a.c", "b.c", "c.c"}
    assert not on_a_circle(c_calls(texts | {"c.c": "int rp_c(int x) { return x; }\n"}))


def test_the_table_is_acyclic() -> None:
    done: set[str] = set()
    while remaining := ALLOWED.keys() - done:
        ready = {layer for layer in remaining if ALLOWED[layer] <= done}
        assert ready, f"a cycle among {sorted(remaining)}"
        done |= ready


def test_every_package_has_its_row() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    files = {path.stem for path in PACKAGE.glob("*.py")}
    hold(sorted(packages - TOP - ALLOWED.keys()), "give the package a row in ALLOWED: what it may import")
    hold(sorted(files - TOP - GROUND_ALLOWED.keys()), "give the module a row in GROUND_ALLOWED: what it may import")


def test_a_wrong_arrow_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of imports understands each spelling."""
    module = tmp_path / "message" / "bad.py"
    module.parent.mkdir()
    module.write_text(
        "import rocketpy.store.flush\nfrom rocketpy import broker\nfrom ..transport import stream\n"
        "from . import batch\ndef f():\n    from ..client.producer import Producer\n"
    )
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert our_layers(module) == {"store", "broker", "transport", "message", "client"}
