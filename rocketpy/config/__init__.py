"""Configuration: the text of `broker.conf` or `namesrv.conf`, turned into frozen objects that code is handed.

Runs in the supervisor (and the name server) before anything else does; workers receive the result. Nothing below reads
the environment or a file again.

    settings = load_broker_config(path, overrides={"namesrvAddr": "10.0.0.1:9876"}, environ=os.environ)
    settings.store.flush_disk_type            # each attribute is its Java key in snake case
    settings.to_properties()                  # codes 26 and 319, -p
    update_broker(settings, {"brokerPermission": "4"})   # codes 25 and 318: a new object, or a refusal

A setting is declared once (`setting.py`), with key, unit, default and trade-off; docs/run/configuration.md is generated
from the declarations (`python -m rocketpy.config.reference`). Those that nothing reads are a table of key and reason
(`without_effect.py`).

    setting, settings               how one is declared; all of one server together
    broker_config, message_store_config, server_config, tls_config      the reference's classes of settings, with
    replication_config              what of them is about replication
    rocketpy_config, failover_config        settings that the reference does not have
    relations, failover_relations   what must hold between them
    advertised                      addresses of a broker that depend on who asks
    properties, environment, load, machine      from text, variables, arguments and machine to settings
    update                          changes at run time, and the file that keeps them
"""

from .advertised import Advertised
from .broker_config import BrokerConfig
from .failover_config import HaMode
from .load import load_broker_config, load_namesrv_config
from .machine import Machine
from .message_store_config import FlushDiskType, MessageStoreConfig
from .relations import parse_addresses, ring_count
from .replication_config import BrokerRole
from .rocketpy_config import RocketpyConfig
from .server_config import NamesrvConfig, ServerConfig
from .settings import BrokerSettings, NamesrvSettings, Note
from .tls_config import ClientAuth, TlsConfig, TlsMode
from .update import update_broker, update_namesrv

__all__ = [
    "Advertised",
    "BrokerConfig",
    "BrokerRole",
    "BrokerSettings",
    "ClientAuth",
    "FlushDiskType",
    "HaMode",
    "Machine",
    "MessageStoreConfig",
    "NamesrvConfig",
    "NamesrvSettings",
    "Note",
    "RocketpyConfig",
    "ServerConfig",
    "TlsConfig",
    "TlsMode",
    "load_broker_config",
    "load_namesrv_config",
    "parse_addresses",
    "ring_count",
    "update_broker",
    "update_namesrv",
]
