"""MessageStoreConfig: where messages lie, when they reach the disk, and how long they stay. Keys of 4.9."""

# ruff: noqa: RUF009 - setting() returns an attrs field; it is meant to run once, in the class body

from __future__ import annotations

import enum

import attrs

from .failover_config import FailoverConfig
from .setting import LONG_MAX, Effect, setting

PAGE_SIZE = 4096  # bytes; what the reference counts `...LeastPages` in

# The store, send and pull workers read these when they start; one line to change when they are told of updates.
_IN_STORE = Effect.AT_RESTART
_IN_CLEANING = Effect.AT_ONCE  # the store worker is told of these

_DLEDGER = "DLedger is not built"
_LMQ = "light message queues are not built"


class FlushDiskType(enum.Enum):
    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


@attrs.frozen(eq=False, repr=False, kw_only=True)
class MessageStoreConfig(FailoverConfig):
    """Frozen; paths are complete after loading (`store_path_commit_log` is never empty)."""

    store_path_root_dir: str = setting(
        "",
        "storePathRootDir",
        "Directory of log, queues, index and tables, on the disk meant for messages. One broker per directory.",
        important=True,
        default_text="~/store",
    )
    store_path_commit_log: str = setting(
        "",
        "storePathCommitLog",
        "Directory of the CommitLog, which takes nearly all writes; a disk of its own keeps queue reads away.",
        important=True,
        default_text="storePathRootDir/commitlog",
    )
    read_only_commit_log_store_paths: str | None = setting(
        None,
        "readOnlyCommitLogStorePaths",
        "CommitLog directories that are only read.",
        only_default="the log lies in one directory",
    )
    mapped_file_size_commit_log: int = setting(
        1_073_741_824,
        "mappedFileSizeCommitLog",
        "Size of a CommitLog file. Whole files are deleted: smaller ones return space sooner, larger ones roll less "
        "often. Fixed once a store exists.",
        unit="bytes",
        at_least=65_536,
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000,
        "mappedFileSizeConsumeQueue",
        "Size of a consume queue file (20 bytes per message, rounded up to whole entries). Files are sparse: a quiet "
        "queue costs little. Fixed once a store exists.",
        unit="bytes",
        at_least=20,
    )
    enable_consume_queue_ext: bool = setting(
        False,
        "enableConsumeQueueExt",
        "Keep tags code, store time and filter bits (enableCalcFilterBitMap) of each message in files beside the "
        "consume queue. Costs 20 bytes, the filter bits and a write per message. Existing files stay readable when "
        "off.",
        c="rp_dispatch_config.consume_queue_ext_enable",
    )
    mapped_file_size_consume_queue_ext: int = setting(
        50_331_648,
        "mappedFileSizeConsumeQueueExt",
        "Size of such a file. Fixed once one exists.",
        unit="bytes",
        at_least=1_024,
        c="rp_pull_config.consume_queue_ext_file_size rp_dispatch_config.consume_queue_ext_file_size",
    )
    flush_interval_commit_log: int = setting(
        500,
        "flushIntervalCommitLog",
        "ASYNC_FLUSH: time between flushes of flushCommitLogLeastPages or more; bounds the "
        "[loss](replication.md#what-may-be-lost) at high rates. Shorter costs disk operations.",
        unit="ms",
        effect=_IN_STORE,
        important=True,
        at_least=1,
    )
    flush_commit_log_timed: bool = setting(
        True,
        "flushCommitLogTimed",
        "ASYNC_FLUSH: flush by the clock. Off: as soon as flushCommitLogLeastPages are dirty, with more disk "
        "operations and less to lose.",
        effect=_IN_STORE,
        important=True,
    )
    flush_interval_consume_queue: int = setting(
        1_000,
        "flushIntervalConsumeQueue",
        "Time between flushes of consume queues. The log can rebuild them: this bounds recovery time only.",
        unit="ms",
        effect=_IN_STORE,
        at_least=1,
    )
    clean_resource_interval: int = setting(
        10_000,
        "cleanResourceInterval",
        "Time between looks for files to delete.",
        unit="ms",
        at_least=1,
    )
    delete_commit_log_files_interval: int = setting(
        100,
        "deleteCommitLogFilesInterval",
        "Pause between deletions of CommitLog files; spares the disk.",
        unit="ms",
        effect=_IN_CLEANING,
    )
    delete_consume_queue_files_interval: int = setting(
        100,
        "deleteConsumeQueueFilesInterval",
        "Pause between deletions of consume queue files.",
        unit="ms",
        effect=_IN_CLEANING,
    )
    delete_when: str = setting(
        "04",
        "deleteWhen",
        "Hours of the day (local time, separated by `;`) in which old files are deleted.",
        effect=_IN_CLEANING,
        important=True,
    )
    disk_max_used_space_ratio: int = setting(
        75,
        "diskMaxUsedSpaceRatio",
        "Fill level at which old files are deleted outside deleteWhen too; limited to 10 to 95.",
        unit="%",
        effect=_IN_CLEANING,
        at_most=100,
    )
    disk_space_warning_level_ratio: int = setting(
        90,
        "diskSpaceWarningLevelRatio",
        "Fill level at which sends are refused (SERVICE_NOT_AVAILABLE).",
        unit="%",
        effect=_IN_CLEANING,
        at_least=35,
        at_most=100,
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85,
        "diskSpaceCleanForciblyRatio",
        "Fill level at which files of any age are deleted.",
        unit="%",
        effect=_IN_CLEANING,
        at_least=30,
        at_most=100,
    )
    disk_free_min_bytes: int = setting(
        67_108_864,
        "diskFreeMinBytes",
        "Free bytes below which sends are refused (SERVICE_NOT_AVAILABLE) and files of any age deleted: stored "
        "messages still need queue entries. 0: off. Not in the reference.",
        unit="bytes",
        effect=_IN_CLEANING,
        at_most=LONG_MAX,
    )
    file_reserved_time: int = setting(
        72,
        "fileReservedTime",
        "Time that a CommitLog file is kept after its last write. A consumer further behind loses messages.",
        unit="hours",
        effect=_IN_CLEANING,
        important=True,
    )
    max_message_size: int = setting(
        4_194_304,
        "maxMessageSize",
        "Largest body, also of a whole batch. Producers check it too.",
        unit="bytes",
        effect=Effect.AT_ONCE,
        at_least=10,
        c="rp_send_config.max_message_size",
    )
    check_crc_on_recover: bool = setting(
        True,
        "checkCRCOnRecover",
        "Check the CRC of each body when the log is recovered; slower.",
    )
    flush_commit_log_least_pages: int = setting(
        4,
        "flushCommitLogLeastPages",
        "ASYNC_FLUSH: fewer dirty pages wait for flushCommitLogThoroughInterval.",
        unit="pages",
        effect=_IN_STORE,
    )
    flush_commit_log_thorough_interval: int = setting(
        10_000,
        "flushCommitLogThoroughInterval",
        "ASYNC_FLUSH: everything is flushed at least this often: [loss](replication.md#what-may-be-lost).",
        unit="ms",
        effect=_IN_STORE,
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000,
        "flushConsumeQueueThoroughInterval",
        "All consume queues are flushed at least this often.",
        unit="ms",
        effect=_IN_STORE,
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        262_144,
        "maxTransferBytesOnMessageInMemory",
        "Most bytes of a pull from memory.",
        unit="bytes",
        effect=_IN_STORE,
        important=True,
        c="rp_pull_config.bytes_in_memory",
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32,
        "maxTransferCountOnMessageInMemory",
        "Most messages of a pull from memory.",
        unit="messages",
        effect=_IN_STORE,
        important=True,
        c="rp_pull_config.count_in_memory",
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        65_536,
        "maxTransferBytesOnMessageInDisk",
        "Most bytes of a pull far behind the end; small, so that a late consumer leaves the disk to others.",
        unit="bytes",
        effect=_IN_STORE,
        important=True,
        c="rp_pull_config.bytes_on_disk",
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8,
        "maxTransferCountOnMessageInDisk",
        "Most messages of a pull far behind the end.",
        unit="messages",
        effect=_IN_STORE,
        important=True,
        c="rp_pull_config.count_on_disk",
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "accessMessageInMemoryMaxRatio",
        "Share of RAM within which messages count as in memory.",
        unit="%",
        effect=_IN_STORE,
        important=True,
        at_most=100,
    )
    message_index_enable: bool = setting(
        True,
        "messageIndexEnable",
        "Build the index by key. Off: queries by key and unique key find nothing new.",
        effect=_IN_STORE,
        important=True,
        c="rp_dispatch_config.index_enable",
    )
    max_hash_slot_num: int = setting(
        5_000_000,
        "maxHashSlotNum",
        "Hash slots (4 bytes each) of an index file. Fixed once a store exists.",
        unit="slots",
        at_least=1,
        c="rp_dispatch_config.hash_slot_num",
    )
    max_index_num: int = setting(
        20_000_000,
        "maxIndexNum",
        "Entries (20 bytes each) of an index file. Fixed once a store exists.",
        unit="entries",
        at_least=2,
        c="rp_dispatch_config.index_num",
    )
    max_msgs_num_batch: int = setting(
        64,
        "maxMsgsNumBatch",
        "Most messages of a query by key.",
        unit="messages",
        at_least=1,
    )
    message_index_safe: bool = setting(
        False,
        "messageIndexSafe",
        "After a crash, trust index files only up to the checkpoint.",
        important=True,
    )
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "flushDiskType",
        "ASYNC_FLUSH answers when the message is in the page cache: survives the death of any process, not a power "
        "loss. SYNC_FLUSH answers when it is on the disk; waiting sends share one sync.",
        effect=Effect.REFUSED,
        important=True,
    )
    sync_flush_timeout: int = setting(
        5_000,
        "syncFlushTimeout",
        "SYNC_FLUSH: time until FLUSH_DISK_TIMEOUT (the message is stored).",
        unit="ms",
        effect=_IN_STORE,
        at_least=1,
        c="rp_send_config.sync_flush_timeout_ms",
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "messageDelayLevel",
        "Delays of levels 1, 2, ...: a number and s, m, h or d each. Retries use levels 3 and up.",
    )
    flush_delay_offset_interval: int = setting(
        10_000,
        "flushDelayOffsetInterval",
        "Time between writes of the progress of delay levels.",
        unit="ms",
        at_least=1,
        at_most=LONG_MAX,
    )
    clean_file_forcibly_enable: bool = setting(
        True,
        "cleanFileForciblyEnable",
        "Delete files too young to go at diskSpaceCleanForciblyRatio. Off: the broker refuses sends instead.",
        effect=_IN_CLEANING,
        important=True,
    )
    duplication_enable: bool = setting(
        False,
        "duplicationEnable",
        "Dispatch only what copies confirm.",
        only_default="dispatch follows the published position",
    )
    os_page_cache_busy_time_out_mills: int = setting(
        1_000,
        "osPageCacheBusyTimeOutMills",
        "An append that takes longer means a busy disk: sends, also those behind it, are refused (SYSTEM_BUSY) until "
        "it is done.",
        unit="ms",
        effect=_IN_STORE,
        at_least=1,
        at_most=10**12,
        c="rp_send_config.page_cache_busy_ms rp_codec_config.send_stall_ms",
    )
    data_read_ahead_enable: bool = setting(
        True,
        "dataReadAheadEnable",
        "Let the kernel read the CommitLog ahead for pulls and queries (of 5.x). Off: the disk reads no more than the "
        "messages asked for. That serves more random reads; a consumer that catches up from the disk is slower.",
    )
    default_query_max_num: int = setting(
        32,
        "defaultQueryMaxNum",
        "Most messages of a query by unique key.",
        unit="messages",
        effect=Effect.AT_ONCE,
        at_least=1,
    )
    enable_dleger_commit_log: bool = setting(
        False,
        "enableDLegerCommitLog",
        "Replicate by DLedger (Raft).",
        only_default=_DLEDGER,
    )
    enable_lmq: bool = setting(False, "enableLmq", "Light message queues.", only_default=_LMQ)
    enable_multi_dispatch: bool = setting(
        False,
        "enableMultiDispatch",
        "One message in several queues.",
        only_default=_LMQ,
    )
