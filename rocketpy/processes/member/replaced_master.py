"""Tells the last master that it was replaced, if it cannot learn that from etcd.

Its lease has ended, because it is gone or because it does not reach etcd. In the second case it would go on as
a master that waits for its lease beside its successor. The successor names its epoch in a HELLO on the HA port of the
last master, again and again, until that is registered in etcd or follows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from rocketpy.config import BrokerSettings
from rocketpy.errors import RocketError
from rocketpy.failover.member_block import Following, MemberBlock
from rocketpy.replication.connection import connect_ha
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.replication.handshake_messages import Extent, Group, Membership
from rocketpy.replication.secret import read_secret
from rocketpy.replication.slave_handshake import introduce
from rocketpy.replication.stream import ByteReader
from rocketpy.store.files import StorePaths

if TYPE_CHECKING:
    from rocketpy.tls import Certificates

PAUSE_S = 0.5  # between two tries
TIMEOUT_S = 0.5  # of the connection, and of each answer


@attrs.frozen(eq=False)
class ReplacedMaster:
    """Whom to tell, and as whom.

    Args:
        replaced: the master to be told; None: there is none, or it knows.
        group, broker_id, file: of this member.
        calls: with haUseTLS, for the connection, loaded before the guardian forked; None: it is plain.
    """

    replaced: Callable[[], Following | None]
    block: MemberBlock
    group: Group
    broker_id: int
    file: EpochFile
    calls: Certificates | None = None

    @classmethod
    def of(
        cls,
        settings: BrokerSettings,
        block: MemberBlock,
        replaced: Callable[[], Following | None],
        calls: Certificates | None,
    ) -> ReplacedMaster:
        """Take what a HELLO says of this member. Raises: ConfigError: a file of the settings cannot be used.

        `calls`: the certificates of this broker's calls, if it makes them by TLS.
        """
        store, broker = settings.store, settings.broker
        group = Group(
            cluster=broker.broker_cluster_name,
            broker_name=broker.broker_name,
            file_size=store.mapped_file_size_commit_log,
            secret=read_secret(store.ha_secret_file),
        )
        file = EpochFile(StorePaths.of(store.store_path_root_dir).root)
        return cls(replaced, block, group, broker.broker_id, file, calls if store.ha_use_tls else None)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await trio.sleep(PAUSE_S)
            master = self.replaced()
            if master is not None:
                await trio.to_thread.run_sync(self.tell, master.ha_address, abandon_on_cancel=True)

    def tell(self, ha_address: str) -> None:
        """Name the epochs of this log to a broker. One that answers with newer ones has replaced this member."""
        own = self.block.own
        if own is None:
            return
        tls = None if self.calls is None else self.calls.refreshed()
        with contextlib.suppress(RocketError), connect_ha(ha_address, TIMEOUT_S, tls) as connection:
            membership = Membership(own.member, own.incarnation, self.file.read())
            reader = ByteReader(connection, TIMEOUT_S, lambda: None, TIMEOUT_S)
            extent = Extent(0, 0)
            welcome = introduce(connection, reader, self.group, self.broker_id, extent, None, None, membership)
            self.block.see_epoch(welcome.epochs.last)
