"""A name server without sockets."""

from pathlib import Path

import pytest

from rocketpy.namesrv.route_info import RouteInfoManager
from tests.support.name_server import Asker
from tests.support.routes import A_SLAVE, B, registration, topic


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


@pytest.fixture
def routes() -> RouteInfoManager:
    """Master a with T1 and T2 on connection 1, its slave on 2, master b with T1 on 3."""
    routes = RouteInfoManager()
    routes.register(registration(topic("T1"), topic("T2")), 1, 0)
    routes.register(registration(topic("T9"), broker_id=1, broker_addr=A_SLAVE), 2, 0)
    routes.register(registration(topic("T1", 8), broker_name="b", broker_addr=B), 3, 0)
    return routes
