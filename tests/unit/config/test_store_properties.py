"""Every property of the reference's store is honoured, or accepted without effect, or refused; never anything between.

The lists are those of 4.9 (MessageStoreConfig, and what of BrokerConfig belongs to the store). A property that is
honoured names a test that fails when it is not; docs/run/configuration.md names all others.
"""

from __future__ import annotations

import re
from pathlib import Path

from rocketpy.config import BrokerRole, BrokerSettings, MessageStoreConfig, without_effect
from rocketpy.config.setting import Declared, declared_settings
from rocketpy.config.settings import known_settings
from tests.support.cases import cases

TESTS = Path(__file__).parents[1]
PAGE = Path(__file__).parents[3] / "docs" / "run" / "configuration.md"

CLEAN, PACE, SERVICE = "store/test_cleaning.py", "store/test_intervals.py", "store/test_store_service.py"
PROPERTIES, HOT, BROKER = "store/test_properties.py", "processes/workers/test_send_and_pull.py", "broker/test_broker.py"
SLOW_READERS = "broker/pulling/test_slow_readers.py"
REPLICATION = "processes/workers/test_replicator.py"
LEVELS = f"{CLEAN}::test_levels_are_configured"
TRANSFER = f"{PROPERTIES}::test_transfer_limits"
TRANSACTIONS = "broker/transactions/test_transactions.py::test_settings_are_read_at_each_round"
PULL = f"{HOT}::test_pull_limits"
FILTERS = "broker/managers/test_consumer_filter.py"

FAILOVER, ETCD = "config/test_failover.py", "processes/member/test_member_from_config.py"

HONOURED = {
    "haMode": f"{FAILOVER}::test_the_process_tree_of_a_role",
    "haEtcdAddresses": f"{ETCD}::test_etcd_is_reached_as_configured",
    "haEtcdUser": f"{ETCD}::test_etcd_is_reached_as_configured",
    "haEtcdPasswordFile": f"{ETCD}::test_etcd_is_reached_as_configured",
    "haEtcdCaFile": f"{ETCD}::test_certificates",
    "haEtcdCertFile": f"{ETCD}::test_certificates",
    "haEtcdKeyFile": f"{ETCD}::test_certificates",
    "haMember": f"{ETCD}::test_the_rules_get_what_is_configured",
    "haMembers": f"{ETCD}::test_the_rules_get_what_is_configured",
    "haLeaseSeconds": f"{ETCD}::test_the_rules_get_what_is_configured",
    "haServeWithoutLease": f"{ETCD}::test_the_rules_get_what_is_configured",
    "haEtcdCompactHours": f"{ETCD}::test_the_rules_get_what_is_configured",
    "haUnhealthySeconds": f"{ETCD}::test_the_rules_get_what_is_configured",
    "haMaxTimeSlaveNotCatchup": f"{ETCD}::test_the_rules_get_what_is_configured",
    "minInSyncReplicas": f"{ETCD}::test_the_rules_get_what_is_configured",
    "disableConsumeIfConsumerReadSlowly": f"{SLOW_READERS}::test_nothing_happens_unless_it_is_asked_for",
    "consumerFallbehindThreshold": f"{SLOW_READERS}::test_a_group_beyond_the_threshold_is_switched_off",
    "storePathRootDir": f"{PROPERTIES}::test_mapped_file_size_commit_log",
    "storePathCommitLog": f"{PROPERTIES}::test_store_path_commit_log",
    "mappedFileSizeCommitLog": f"{PROPERTIES}::test_mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": f"{PROPERTIES}::test_mapped_file_size_consume_queue",
    "enableConsumeQueueExt": "store/consume_queue_ext/test_units.py::test_turned_off_and_on_again",
    "mappedFileSizeConsumeQueueExt": "store/consume_queue_ext/test_units.py::test_another_file_size_is_refused",
    "flushIntervalCommitLog": f"{PACE}::test_the_log_is_flushed_when_enough_is_dirty_or_too_long_ago",
    "flushCommitLogTimed": f"{SERVICE}::test_flushing_that_is_not_timed_follows_each_page",
    "flushIntervalConsumeQueue": f"{PACE}::test_units_are_flushed_when_recovery_would_take_long_or_too_long_ago",
    "cleanResourceInterval": f"{PACE}::test_cleaning_begins_a_while_after_the_start",
    "deleteCommitLogFilesInterval": f"{CLEAN}::test_pauses_between_deletions",
    "deleteConsumeQueueFilesInterval": f"{CLEAN}::test_pauses_between_deletions",
    "deleteWhen": f"{CLEAN}::test_hours_of_cleaning",
    "diskMaxUsedSpaceRatio": LEVELS,
    "diskSpaceWarningLevelRatio": LEVELS,
    "diskSpaceCleanForciblyRatio": LEVELS,
    "diskFreeMinBytes": LEVELS,
    "cleanFileForciblyEnable": LEVELS,
    "transactionTimeOut": TRANSACTIONS,
    "transactionCheckMax": TRANSACTIONS,
    "transactionCheckInterval": f"{BROKER}::test_transactions_are_checked_as_often_as_configured",
    "fileReservedTime": f"{CLEAN}::test_the_age_is_that_of_the_last_write",
    "maxMessageSize": "native/test_admission.py::test_the_largest_body_changes_at_run_time",
    "checkCRCOnRecover": f"{PROPERTIES}::test_check_crc_on_recover",
    "flushCommitLogLeastPages": f"{PACE}::test_the_log_is_flushed_when_enough_is_dirty_or_too_long_ago",
    "flushCommitLogThoroughInterval": f"{PACE}::test_the_log_is_flushed_when_enough_is_dirty_or_too_long_ago",
    "flushConsumeQueueThoroughInterval": (
        f"{PACE}::test_units_are_flushed_when_recovery_would_take_long_or_too_long_ago"
    ),
    "maxTransferBytesOnMessageInMemory": TRANSFER,
    "maxTransferCountOnMessageInMemory": TRANSFER,
    "maxTransferBytesOnMessageInDisk": TRANSFER,
    "maxTransferCountOnMessageInDisk": TRANSFER,
    "accessMessageInMemoryMaxRatio": TRANSFER,
    "messageIndexEnable": f"{PROPERTIES}::test_message_index_enable",
    "maxHashSlotNum": f"{PROPERTIES}::test_sizes_of_index_files",
    "maxIndexNum": f"{PROPERTIES}::test_sizes_of_index_files",
    "maxMsgsNumBatch": f"{PROPERTIES}::test_max_msgs_num_batch",
    "messageIndexSafe": f"{PROPERTIES}::test_message_index_safe",
    "flushDiskType": f"{SERVICE}::test_sync_flush_moves_the_durable_position_at_once",
    "syncFlushTimeout": "native/fast_path/test_sends.py::test_sync_flush_that_takes_too_long_is_said_so",
    "messageDelayLevel": f"{PROPERTIES}::test_message_delay_level",
    "flushDelayOffsetInterval": f"{BROKER}::test_how_often_offsets_are_saved",
    "osPageCacheBusyTimeOutMills": "native/test_admission.py::test_a_stall_is_one_from_its_limit_on",
    "dataReadAheadEnable": f"{PROPERTIES}::test_data_read_ahead_enable",
    "defaultQueryMaxNum": "broker/processors/test_queries.py::test_messages_of_a_query_by_unique_key",
    # of BrokerConfig
    "flushConsumerOffsetInterval": f"{BROKER}::test_how_often_offsets_are_saved",
    "longPollingEnable": PULL,
    "filterSupportRetry": PULL,
    "enablePropertyFilter": f"{FILTERS}::test_a_subscription_is_born_with_its_filter_bits",
    "enableCalcFilterBitMap": f"{FILTERS}::test_without_filter_bits_the_store_is_told_nothing",
    "expectConsumerNumUseFilter": f"{FILTERS}::test_filters_with_bits_of_another_size_are_dropped_at_the_start",
    "maxErrorRateOfBloomFilter": "filter/test_bloom.py::test_sizes",
    "filterDataCleanTimeSpan": f"{FILTERS}::test_the_old_dead_are_dropped",
    "shortPollingTimeMills": PULL,
    "slaveReadEnable": PULL,
    "brokerRole": "processes/workers/test_send_and_pull.py::test_a_sync_master_waits_for_slaves",
    "haSlaveFallbehindMax": f"{HOT}::test_send_limits",
    "slaveTimeout": f"{HOT}::test_send_limits",
    "haSendHeartbeatInterval": f"{REPLICATION}::test_limits_of_the_loop",
    "haHousekeepingInterval": f"{REPLICATION}::test_limits_of_the_loop",
    "haTransferBatchSize": f"{REPLICATION}::test_limits_of_the_loop",
    "maxHaTransferByteInSecond": f"{REPLICATION}::test_limits_of_the_loop",
    "haConnectionsMax": f"{REPLICATION}::test_limits_of_the_loop",
    "haUseTLS": "replication/test_connection.py::test_a_slave_gets_the_log_by_tls_with_haUseTLS",
    "haSecretFile": f"{REPLICATION}::test_limits_of_the_loop",
    "haAddresses": f"{REPLICATION}::test_who_may_be_a_slave",
    "haMasterAddress": "replication/test_slave.py::test_the_address_of_the_log_can_be_given",
    "offsetCheckInSlave": PULL,
    "haTruncateDiverged": "replication/test_truncation.py::test_a_cut_is_asked_for_and_the_store_opened_again",
    "haDivergedSizeMax": "store/test_cut.py::test_what_is_kept_of_all_cuts_is_bounded",
    "haCheckCrc": "native/test_slave_log.py::test_a_body_with_another_checksum",
    "rejectTransactionMessage": "broker/sending/test_slow_send.py::test_refusals",
}
IGNORED = {
    "storePathDLedgerCommitLog",
    "bitMapLengthConsumeQueueExt",
    "commitIntervalCommitLog",
    "useReentrantLockWhenPutMessage",
    "destroyMapedFileIntervalForcibly",
    "redeleteHangedFileInterval",
    "putMsgIndexHightWater",
    "commitCommitLogLeastPages",
    "flushLeastPagesWhenWarmMapedFile",
    "flushConsumeQueueLeastPages",
    "commitCommitLogThoroughInterval",
    "haListenPort",
    "warmMapedFileEnable",
    "debugLockEnable",
    "diskFallRecorded",
    "transientStorePoolEnable",
    "transientStorePoolSize",
    "fastFailIfNoBufferInStorePool",
    "dLegerGroup",
    "dLegerPeers",
    "dLegerSelfId",
    "preferredLeaderId",
    "enableBatchPush",
    "enableScheduleMessageStats",
    "maxLmqConsumeQueueNum",
    "enableScheduleAsyncDeliver",
    "scheduleAsyncDeliverMaxPendingLimit",
    "scheduleAsyncDeliverMaxResendNum2Blocked",
    "transferMsgByHeap",
}
REFUSED = {
    "readOnlyCommitLogStorePaths",
    "duplicationEnable",
    "enableDLegerCommitLog",
    "enableLmq",
    "enableMultiDispatch",
}
OF_BROKER_CONFIG = {
    "flushConsumerOffsetInterval",
    "longPollingEnable",
    "shortPollingTimeMills",
    "slaveReadEnable",
    "rejectTransactionMessage",
    "transferMsgByHeap",
    "enableCalcFilterBitMap",
    "expectConsumerNumUseFilter",
    "maxErrorRateOfBloomFilter",
    "filterDataCleanTimeSpan",
    "filterSupportRetry",
    "enablePropertyFilter",
    "transactionTimeOut",
    "transactionCheckMax",
    "transactionCheckInterval",
    "consumerFallbehindThreshold",
    "disableConsumeIfConsumerReadSlowly",
}


def declarations() -> dict[str, Declared]:
    of_store = {declared.setting.key for declared in declared_settings(MessageStoreConfig)}
    of_store |= {key for key, _, _ in without_effect.rows(without_effect.STORE)}
    known = known_settings(BrokerSettings())
    return {key: known[key][0][1] for key in of_store | OF_BROKER_CONFIG}


def test_every_property_is_of_exactly_one_kind() -> None:
    assert len(HONOURED) + len(IGNORED) + len(REFUSED) == len({*HONOURED, *IGNORED, *REFUSED})
    assert {*HONOURED, *IGNORED, *REFUSED} == set(declarations())


@cases("key", sorted(declarations()))
def test_the_loader_treats_it_as_that_kind(key: str) -> None:
    setting = declarations()[key].setting
    assert bool(setting.ignored) is (key in IGNORED)
    assert bool(setting.only_default) is (key in REFUSED)


@cases("key", sorted(HONOURED))
def test_what_is_honoured_has_a_test(key: str) -> None:
    path, _, name = HONOURED[key].partition("::")
    text = (TESTS / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{key}: there is no {HONOURED[key]}"


@cases("key", sorted([*IGNORED, *REFUSED]))
def test_what_is_not_honoured_is_named(key: str) -> None:
    assert f"`{key}`" in PAGE.read_text(encoding="utf-8"), f"{PAGE} does not name it"


def test_a_broker_is_a_master_by_default() -> None:
    assert declarations()["brokerRole"].default is BrokerRole.ASYNC_MASTER
