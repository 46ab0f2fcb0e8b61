"""Settings of the reference that are accepted and have no effect here, each with the reason and its default.

They are checked for their type, shown like the others (codes 26 and 319, -p), named in a log line at start when they
are given, and listed in docs/run/configuration.md. What begins to have an effect moves to its config class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from rocketpy.values import Value

from .setting import LONG_MAX, Effect, setting

Default = bool | int | str | None
Table = Mapping[str, Mapping[str, Default]]  # reason -> key -> default

SERVER: Table = {
    "callbacks run where the response arrives": {
        "serverCallbackExecutorThreads": 0,
    },
    "a push is written or dropped; nothing waits": {
        "serverOnewaySemaphoreValue": 256,
    },
    "requests to clients are few, and each has a timeout": {
        "serverAsyncSemaphoreValue": 64,
    },
    "the kernel sizes socket buffers": {
        "serverSocketSndBufSize": 0,
        "serverSocketRcvBufSize": 0,
    },
    "belongs to Netty's buffers": {
        "writeBufferHighWaterMark": 0,
        "writeBufferLowWaterMark": 0,
        "serverPooledByteBufAllocatorEnable": True,
    },
    "epoll is always used": {
        "useEpollNativeSelector": False,
    },
}
BROKER: Table = {
    "one process writes the log (docs/understand/architecture.md, Pools)": {
        "sendMessageThreadPoolNums": 4,
    },
    "there are no thread pools (docs/understand/architecture.md, Pools)": {
        "adminBrokerThreadPoolNums": 16,
        "clientManageThreadPoolNums": 32,
        "consumerManageThreadPoolNums": 32,
        "heartbeatThreadPoolNums": 2,
        "putMessageFutureThreadPoolNums": 4,
        "processReplyMessageThreadPoolNums": 20,
        "endTransactionThreadPoolNums": 16,
    },
    "the reference does not read it either": {
        "flushConsumerOffsetHistoryInterval": 60_000,
        "consumerManagerThreadPoolQueueCapacity": 1_000_000,
        "highSpeedMode": False,
        "maxDelayTime": 40,
        "filterServerNums": 0,
    },
    "rings of ringSize join the workers; a full ring makes the selector stop reading": {
        "sendThreadPoolQueueCapacity": 10_000,
        "clientManagerThreadPoolQueueCapacity": 1_000_000,
        "endTransactionPoolQueueCapacity": 100_000,
        "putThreadPoolQueueCapacity": 10_000,
    },
    "END_TRANSACTION is served at any age: a refusal would cost a check of the producer": {
        "waitTimeMillsInTransactionQueue": 3_000,
    },
    "the log goes to standard error": {
        "isolateLogEnable": False,
    },
    "belongs to the commercial edition": {
        "commercialEnable": True,
        "commercialTimerCount": 1,
        "commercialTransCount": 1,
        "commercialBigCount": 1,
        "commercialBaseCount": 1,
    },
    "messages always go from the mapped log to the socket": {
        "transferMsgByHeap": True,
    },
}
STORE: Table = {
    "DLedger is not built": {
        "storePathDLedgerCommitLog": None,
        "dLegerGroup": None,
        "dLegerPeers": None,
        "dLegerSelfId": None,
        "preferredLeaderId": None,
        "enableBatchPush": False,
    },
    "expectConsumerNumUseFilter and maxErrorRateOfBloomFilter set the number of filter bits": {
        "bitMapLengthConsumeQueueExt": 64,
    },
    "appends go to the mapped file, without a second buffer": {
        "commitIntervalCommitLog": 200,
        "commitCommitLogLeastPages": 4,
        "commitCommitLogThoroughInterval": 200,
        "transientStorePoolEnable": False,
        "transientStorePoolSize": 5,
        "fastFailIfNoBufferInStorePool": False,
    },
    "one process writes the log, without a lock": {
        "useReentrantLockWhenPutMessage": True,
        "debugLockEnable": False,
    },
    "the kernel keeps an unlinked file for its readers": {
        "destroyMapedFileIntervalForcibly": 120_000,
    },
    "a file in use can be unlinked at once": {
        "redeleteHangedFileInterval": 120_000,
    },
    "the reference does not read it either": {
        "putMsgIndexHightWater": 600_000,
    },
    "the next file is always allocated and pre-faulted in advance": {
        "flushLeastPagesWhenWarmMapedFile": 4_096,
        "warmMapedFileEnable": False,
    },
    "every changed queue is flushed": {
        "flushConsumeQueueLeastPages": 2,
    },
    "these statistics are always kept": {
        "diskFallRecorded": True,
        "enableScheduleMessageStats": True,
    },
    "light message queues are not built": {
        "maxLmqConsumeQueueNum": 20_000,
    },
    "delayed messages are delivered in order, many at a time": {
        "enableScheduleAsyncDeliver": False,
        "scheduleAsyncDeliverMaxPendingLimit": 2_000,
        "scheduleAsyncDeliverMaxResendNum2Blocked": 3,
    },
}
CLIENT: Table = {
    "callbacks run where the response arrives": {
        "clientWorkerThreads": 4,
        "clientCallbackExecutorThreads": 0,
        "clientOnewaySemaphoreValue": 65_535,
    },
    "a broker rarely calls name servers, for at most registerBrokerTimeoutMills": {
        "clientAsyncSemaphoreValue": 65_535,
        "connectTimeoutMillis": 3_000,
        "clientChannelMaxIdleTimeSeconds": 120,
        "clientCloseSocketIfTimeout": True,
    },
    "the reference does not read it either": {
        "channelNotActiveInterval": 60_000,
    },
    "the kernel sizes socket buffers": {
        "clientSocketSndBufSize": 0,
        "clientSocketRcvBufSize": 0,
    },
    "belongs to Netty's buffers": {
        "clientPooledByteBufAllocatorEnable": False,
    },
}
NAMESRV: Table = {
    "cluster test mode is not built": {
        "productEnvName": "center",
    },
}

IMPORTANT = frozenset(
    {
        "commitIntervalCommitLog",
        "transientStorePoolEnable",
    }
)
"""Shown by `mqbroker -m`."""


def rows(*tables: Table) -> Iterator[tuple[str, str, Default]]:
    """(key, reason, default) of each."""
    for table in tables:
        for reason, defaults in table.items():
            for key, default in defaults.items():
                yield key, reason, default


def attribute_of(key: str) -> str:
    """The attribute of `WithoutEffect` classes that holds a key's value."""
    return key.replace(".", "_")


def _config_class(name: str, *tables: Table) -> type[Any]:
    """Make a config class of the keys of `tables`."""
    fields = {attribute_of(key): _declare(key, reason, default) for key, reason, default in rows(*tables)}
    made: type[Any] = attrs.make_class(name, fields, bases=(Value,), frozen=True, kw_only=True, eq=False, repr=False)
    made.__annotations__ = {attribute_of(key): _type_of(default) for key, _, default in rows(*tables)}
    return made


def _type_of(default: Default) -> Any:
    return str | None if default is None else type(default)


def _declare(key: str, reason: str, default: Default) -> Default:
    return setting(
        default,
        key,
        "Nothing.",
        effect=Effect.NONE,
        ignored=reason,
        important=key in IMPORTANT,
        at_most=LONG_MAX,
    )


BrokerWithoutEffect = _config_class("BrokerWithoutEffect", SERVER, BROKER, STORE, CLIENT)
NamesrvWithoutEffect = _config_class("NamesrvWithoutEffect", SERVER, NAMESRV)
