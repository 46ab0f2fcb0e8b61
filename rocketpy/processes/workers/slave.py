"""The replicator of a slave: writes the log that its master sends.

Short: only a slave imports it, with all that it needs of `rocketpy.replication`: 0.3 MiB of an idle master.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.topology import REPLICATOR, SEND, STORE
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.replication.follower import Follower
from rocketpy.replication.guide import NamedMaster
from rocketpy.replication.protocols import SlaveSide
from rocketpy.replication.secret import read_secret
from rocketpy.replication.slave import SlaveReplicator
from rocketpy.replication.stream import Intake, StreamSettings
from rocketpy.replication.truncation import Truncation

from .inherited import Inherited


def slave_replicator(inherited: Inherited, link: MasterLink, *, may_truncate: bool) -> SlaveReplicator:
    """Return `main` of the replicator of a slave.

    Args:
        may_truncate: haTruncateDiverged counts. False after the store has refused to be cut.
    Raises:
        ConfigError: haSecretFile cannot be used.
    """
    settings, topology, member = inherited.settings, inherited.topology, inherited.member
    control, store, truncation = inherited.control, settings.store, None
    guide: NamedMaster | Follower
    if member is not None:
        file, store_worker = EpochFile(Path(store.store_path_root_dir)), topology.blocks[STORE].pointer
        guide = Follower(member.memory.block, file, control.header, store_worker, member.is_sync_group)
    else:
        guide = NamedMaster(link, store.ha_master_address)
        if store.ha_truncate_diverged and may_truncate:
            truncation = Truncation(inherited.paths.root, store.ha_diverged_size_max)
    ring = topology.ring(REPLICATOR, SEND)
    intake = Intake(topology.blocks[REPLICATOR], control, link, ring, StreamSettings.of(settings))
    secret = read_secret(store.ha_secret_file)
    identity = inherited.certificates
    credentials = (lambda: None) if identity.credentials is None else identity.credentials.refreshed
    return SlaveReplicator(SlaveSide(intake, guide, settings, secret, truncation, identity.calls, credentials))
