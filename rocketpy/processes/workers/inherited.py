"""Settings, rings and tables in shared memory that all workers of one broker inherit when they are forked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketpy.broker.fast_path.shared_memory import DeliveryMarks, FilterMarks, SharedHalfStates
from rocketpy.config import BrokerSettings
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.pools import PoolTable
from rocketpy.reactor.topology import Topology
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import StorePaths
from rocketpy.store.timers import TimerMarks

if TYPE_CHECKING:
    from rocketpy.acl.credentials import CredentialsFile
    from rocketpy.broker.access import AccessControl, AccountsKeeper
    from rocketpy.broker.fast_path.shared_access import SharedAccess
    from rocketpy.broker.fast_path.shared_limits import SharedLimits
    from rocketpy.failover.member_block import MemberBlock
    from rocketpy.tls import Certificates

    from ..member.shown import MemberShown
    from ..member.tree import MemberTree


@attrs.frozen(eq=False, kw_only=True)
class BrokerCertificates:
    """The certificates and credentials of a broker, loaded before its ports are open: a worker, or a member's process
    tree, that starts later has them even if the files have gone or do not load any more. None: no TLS there, or no
    signature.
    """

    serves: Certificates | None = None  # its own ports
    calls: Certificates | None = None  # requests to name servers and to the master
    credentials: CredentialsFile | None = None  # of the same requests


PLAIN = BrokerCertificates()


@attrs.frozen(eq=False, kw_only=True)
class Inherited:
    """Made once, before the first fork: a worker that is started again has the same rings and tables as the one before.

    Each main takes out of it what its worker uses.
    """

    settings: BrokerSettings
    topology: Topology
    control: ControlBlock
    pools: PoolTable
    delivered: DeliveryMarks
    halves: SharedHalfStates
    timers: TimerMarks
    filter_marks: FilterMarks
    slaves: SlaveTable
    master_link: MasterLink | None = None  # on a slave
    member: MemberTree | None = None  # with automatic failover
    certificates: BrokerCertificates = PLAIN
    access: SharedAccess | None = None  # with aclEnable
    limits: SharedLimits | None = None  # of addresses and accounts

    def access_control(self) -> AccessControl | None:
        """Make the access control of a process; None: every request is allowed."""
        if self.access is None:
            return None
        from rocketpy.broker.access import AccessControl

        own = self.settings.rocketpy
        return AccessControl.of(self.access, strict=own.acl_strict, brokers=own.acl_broker_accounts, limits=self.limits)

    def accounts(self) -> AccountsKeeper | None:
        """Make the owner of the files of accounts, in the manager; None without access control."""
        if self.access is None:
            return None
        from rocketpy.broker.access import AccountsKeeper, account_files

        return AccountsKeeper(account_files(self.settings), self.access)

    @property
    def paths(self) -> StorePaths:
        """Directories and files of the store."""
        store = self.settings.store
        return StorePaths.of(store.store_path_root_dir, store.store_path_commit_log)

    @property
    def is_replaced(self) -> bool:
        """True if this process tree is being stopped for another one of the same broker: it stays registered."""
        return self.member is not None and self.member.memory.marks.is_replaced

    @property
    def orders(self) -> MemberBlock | None:
        """The member block, in which the coordinator says what is to be; None without automatic failover."""
        return None if self.member is None else self.member.memory.block

    @property
    def shown(self) -> MemberShown | None:
        """The coordinator's view of itself, for metrics and operators; None without automatic failover."""
        return None if self.member is None else self.member.memory.shown
