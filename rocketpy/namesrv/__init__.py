"""The name server: which broker serves which topic, and a small key-value table. One trio process.

    run_namesrv(load_namesrv_config(path, {}, os.environ))

`route_info` holds the tables (pure values), `kv_config` the key-value file, `processor` one method per request code,
`namesrv` the process: sockets, the scan for silent brokers, signals. Name servers do not know each other; brokers
register with all of them, and what is lost with one comes back with the next registration.
"""

from .namesrv import Listeners, NameServer, run_namesrv

__all__ = ["Listeners", "NameServer", "run_namesrv"]
