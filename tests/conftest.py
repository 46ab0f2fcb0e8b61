"""Rules for all tests: hypothesis has no time limits, skips fail under CI, a second try is shown and hides no loss,
the longest tests begin first.

CI tries a failed test once more (`--reruns 1`), because clients of three languages, kills and loads share two cores
with everything else on the machine. A test that passes only then is printed as `flaky: NAME`, and is listed in
tests/flaky.txt with its cause until the cause is removed. Tests that ask for lost or doubled messages have no second
try: a loss in one run of two is a loss. They lie in the places of ONE_TRY, or are marked `one_try`.
"""

from __future__ import annotations

import gc
import os
import socket
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer

from tests.support import loops
from tests.support.distribution import Scheduling, longest_first

# Directories and files whose subject is loss: histories, crashes, kills.
ONE_TRY = (
    "property/",
    "fault/",
    "ha/",
    "kubernetes/",
    "unit/broker/",
    "unit/failover/",
    "unit/native/",
    "unit/replication/",
    "unit/cli/",
    "unit/processes/",
    "unit/store/",
    "system/test_own_pair.py",
    "system/test_pair.py",
    "system/test_stop_and_restart.py",
    "system/test_sync_master.py",
    "interop/test_java_histories.py",
    "interop/test_java_slave.py",
    "interop/test_slave_",
    "interop/test_store_",
    "interop/test_transactions.py",
    "interop/test_worker_deaths.py",
    "spark/test_dedup_stream.py",
    "spark/test_exactness.py",
    "spark/test_java_broker.py",
    "spark_tables/test_rest_catalog.py",
)
HERE = Path(__file__).parent
FLAKY_LIST = "ROCKETPY_FLAKY_LIST"  # .ci/run names a file

# The machine is shared: a slow example says nothing about the code.
hypothesis.settings.register_profile("rocketpy", deadline=None)
hypothesis.settings.load_profile("rocketpy")


def has_one_try(path: Path) -> bool:
    return path.is_relative_to(HERE) and str(path.relative_to(HERE)).startswith(ONE_TRY)


@pytest.fixture(params=loops.BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backend under which `loops.run` runs a test; a test that uses this fixture is run under each."""
    monkeypatch.setattr(loops, "chosen", request.param)
    return str(request.param)


def pytest_collection(session: pytest.Session) -> None:
    """Collect garbage not before all tests are known: modules and items are none, and there are a million objects."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave modules and items out of all later collections, of forks as well."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out also what a file of tests keeps: the rules about code keep two million objects, the trees of modules,
    and each full collection of a later test in that process took two seconds."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Set TCP_NODELAY on the connection of pytest-rerunfailures to its server: else each test waits 40 ms."""
    connection = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Give tests to workers as tests/support/distribution.py says, where files are asked for."""
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    longest_first(items)
    if not config.getoption("reruns", 0):
        return  # nothing is tried twice
    for item in items:
        if has_one_try(item.path) or item.get_closest_marker("one_try"):
            item.add_marker(pytest.mark.flaky(reruns=0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Fail a skipped test under CI: the machine lacks something that CI must have."""
    report: pytest.TestReport = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped under CI=true: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> object:
    """Fail a file that is skipped as a whole under CI."""
    report: pytest.CollectReport = yield
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped under CI=true: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print `flaky: NAME` for each test that passed at its second try, and `failed twice: NAME` for each that did not,
    under the failure of the first.

    The lines are also added to the file ROCKETPY_FLAKY_LIST, from which .ci/run prints them all at its end.
    """
    failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
    for report in terminalreporter.stats.get("rerun", []):
        line = f"{'failed twice' if report.nodeid in failed else 'flaky'}: {report.nodeid}"
        terminalreporter.write_line(report.longreprtext)
        terminalreporter.write_line(line)
        path = os.environ.get(FLAKY_LIST)
        if path and not hasattr(terminalreporter.config, "workerinput"):  # workers of pytest-xdist come here, too
            with open(path, "a") as lines:
                lines.write(f"{line}\n")
