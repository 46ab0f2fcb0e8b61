"""What importing the client, and the modules of a server, loads: it costs time, and each server memory."""

import subprocess
import sys

import pytest

import rocketpy.client
from rocketpy.cli.settings import STORE_VARIABLE
from rocketpy.config.environment import variable_of

COMPILED = {"cffi", "_cffi_backend", "rocketpy.native"}
OF_EXTRAS = {"cryptography", "etcd3gw", "httpcore", "lz4", "pyspark", "uvloop", "yaml", "zstandard"}
HEAVY = {  # of the standard library
    *("asyncio", "concurrent.futures.thread", "ctypes", "difflib", "email", "html", "http", "multiprocessing"),
    *("pickle", "shutil", "sqlite3", "ssl", "subprocess", "tempfile", "unittest", "xml"),
}
ALL_OF_A_CLIENT = "from rocketpy.client import *; import rocketpy.client.sync"
A_SERVER = "import rocketpy.cli.main, " + ", ".join(
    f"rocketpy.processes.boot.{name}" for name in ("standalone", "worker_list", "table_check", "namesrv")
)


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new interpreter loads for a statement."""
    program = f"import sys; before = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def within(loaded: set[str], packages: set[str]) -> set[str]:
    """Return the modules of these packages."""
    return {name for name in loaded if any(name == one or name.startswith(f"{one}.") for one in packages)}


def test_a_client_needs_attrs_and_a_few_modules_of_the_standard_library() -> None:
    loaded = loaded_by(ALL_OF_A_CLIENT)
    assert {"rocketpy.client.push_consumer", "rocketpy.client.sync"} <= loaded
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert foreign == {"attr", "attrs", "rocketpy"}
    assert not within(loaded, HEAVY | COMPILED | {"rocketpy.config", "rocketpy.tls", "rocketpy.acl"})


def test_a_client_loads_what_it_uses() -> None:
    assert within(loaded_by("import rocketpy.client"), {"rocketpy"}) == {"rocketpy", "rocketpy.client"}
    loaded = loaded_by("from rocketpy.client import Message, Producer")
    assert not within(loaded, {"rocketpy.client.push_consumer", "rocketpy.client.pull_consumer"})


def test_every_public_name_of_the_client_is_found() -> None:
    assert rocketpy.client._MODULES.keys() == set(rocketpy.client.__all__) == set(dir(rocketpy.client))
    for name in rocketpy.client.__all__:
        assert getattr(rocketpy.client, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Consumer'"):
        rocketpy.client.Consumer  # noqa: B018 -- it is looked up


def test_a_server_loads_nothing_that_is_not_in_use() -> None:
    """Fault: Its modules took 8 % of a start and 2 % of idle memory of brokers without accounts."""
    loaded = loaded_by(A_SERVER)
    assert {"rocketpy.broker.broker", "rocketpy.namesrv.namesrv"} <= loaded
    unused = {"rocketpy.acl", "rocketpy.broker.access", "rocketpy.client", "rocketpy.tls", "rocketpy.transport.tls"}
    unused |= {"rocketpy.filter.expression", "rocketpy.transport.asyncio_stream", "rocketpy.transport.signing"}
    assert not within(loaded, unused | OF_EXTRAS | {"asyncio", "click", "difflib", "lark", "prometheus_client"})


A_SCRAPE = """
import socket
from rocketpy.metrics.address import listen
from rocketpy.metrics.collector import NamesrvCollector
from rocketpy.metrics.endpoint import Endpoint
from rocketpy.metrics.snapshot import NamesrvSnapshot
snapshot = NamesrvSnapshot(brokers=2, clusters=1, topics=7, connections=3, requests={})
with Endpoint(listen("127.0.0.1", 0), NamesrvCollector(lambda: snapshot)) as endpoint:
    with socket.create_connection(("127.0.0.1", endpoint.port)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\\r\\nAccept: %s\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n")
        answer = client.makefile("rb").read()
assert answer.startswith(b"HTTP/1.0 200 OK"), answer
"""
PROMETHEUS = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3"


def test_a_usual_scrape_loads_no_other_servers_and_encoders() -> None:
    """Fault: prometheus_client, and the HTTP server that it imports, were 5 MiB of the memory of each broker."""
    loaded = loaded_by(A_SCRAPE % PROMETHEUS)
    assert "rocketpy.metrics.scrape" in loaded
    others = {"prometheus_client", "http", "email", "html", "socketserver", "urllib.request", "wsgiref"}
    assert not within(loaded, others)
    other = loaded_by(A_SCRAPE % "application/openmetrics-text;version=1.0.0;escaping=dots")
    assert "prometheus_client" in other


def test_certificates_are_read_without_a_library_of_dates() -> None:
    assert not within(loaded_by("import rocketpy.tls, rocketpy.acl.files"), {"_strptime", "calendar", "difflib"})


def test_the_arguments_of_a_server_are_read_without_its_settings_and_other_commands() -> None:
    """Fault: Their modules were imported a second time at each start, which took a fifth of its processor time."""
    words = ["standalone", "--port", "1234"]
    call = f"cli({words}, obj=lambda order: None, standalone_mode=False)"
    loaded = loaded_by(f"from rocketpy.cli.command_line import cli; {call}")
    assert "rocketpy.cli.command_line" in loaded
    others = {f"rocketpy.cli.{name}" for name in ("bench", "console", "doctor_command", "pipeline")}
    assert not within(loaded, others | COMPILED | {"rocketpy.config", "rocketpy.admin", "trio"})


def test_the_variable_of_the_store_has_the_name_of_its_property() -> None:
    assert variable_of("storePathRootDir") == STORE_VARIABLE


def test_command_lines_are_read_without_the_compiled_core() -> None:
    """Fault: Without it a server said nothing but the names of modules, because one of the commands imported it."""
    assert not within(loaded_by("import rocketpy.cli.command_line, rocketpy.admin.cli"), COMPILED)
