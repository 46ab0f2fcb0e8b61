"""The broker under test, topics of their own for each test, and programs that end with it.

ROCKETPY_INTEROP_TARGET=java runs the same tests against the official broker: it proves the tests, not rocketpy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.admin_tools import compile_tool, java_tool
from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, running_target
from tests.interop.mqadmin import MqAdmin, NewMqAdmin
from tests.interop.programs import LANGUAGES, Launcher
from tests.interop.store_filling import compile_filler
from tests.interop.training import prepare

Launch = Callable[[AnyBroker], Launcher]


@pytest.fixture(scope="session")
def target() -> str:
    name = os.environ.get("ROCKETPY_INTEROP_TARGET", "rocketpy")
    assert name in ("rocketpy", "java"), f"ROCKETPY_INTEROP_TARGET={name}"
    return name


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """Build and fetch everything before the first test, so that no test waits for a download."""
    try:
        prepare()
    except toolchain.Missing as missing:
        pytest.skip(f"{missing}: the official clients need a JDK (17 or later), Maven and Go")


@pytest.fixture(scope="session")
def start_broker(target: str) -> Callable[..., AbstractContextManager[AnyBroker]]:
    """For tests that stop, kill or configure a broker of their own."""
    return lambda **options: running_target(target, **options)


@pytest.fixture(scope="session")
def broker(start_broker: Callable[..., AbstractContextManager[AnyBroker]]) -> Iterator[AnyBroker]:
    """The broker that most tests share; each uses topics and groups of its own."""
    with start_broker() as running:
        yield running


@pytest.fixture(scope="session")
def names() -> NameMaker:
    """A name that nothing else in this run has."""
    used = 0

    def make(stem: str) -> str:
        nonlocal used
        used += 1
        return f"{stem}_{used}"

    return make


@pytest.fixture(scope="session")
def make_topic(broker: AnyBroker, names: NameMaker) -> TopicMaker:
    return TopicMaker(broker, names)


@pytest.fixture
def launch(broker: AnyBroker, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(broker.namesrv, tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def module_launch(broker: AnyBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    launcher = Launcher(broker.namesrv, tmp_path_factory.mktemp("programs"))
    yield launcher
    launcher.close()


@pytest.fixture
def launch_at(tmp_path: Path) -> Iterator[Launch]:
    """A launcher for a broker of the test's own."""
    launchers: list[Launcher] = []

    def make(running: AnyBroker) -> Launcher:
        directory = tmp_path / f"programs-{len(launchers)}"
        directory.mkdir()
        launchers.append(Launcher(running.namesrv, directory))
        return launchers[-1]

    yield make
    for launcher in launchers:
        launcher.close()


@pytest.fixture(scope="session")
def mqadmin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    directory = tmp_path_factory.mktemp("mqadmin")
    with java_tool(compile_tool(directory), directory / "home") as tool:
        yield MqAdmin(tool)


@pytest.fixture
def new_mqadmin(tmp_path: Path) -> NewMqAdmin:
    return NewMqAdmin(tmp_path / "mqadmin")


@pytest.fixture(scope="session")
def filler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The class path of store_java/Fill.java and Settle.java."""
    return compile_filler(tmp_path_factory.mktemp("filler"))


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
