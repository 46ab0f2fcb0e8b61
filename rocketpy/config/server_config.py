"""ServerConfig and ClientConfig: the listening side and the calling side of the wire. Netty's keys (4.9)."""

# ruff: noqa: RUF009 - setting() returns an attrs field; it is meant to run once, in the class body

from __future__ import annotations

import enum

import attrs

from .setting import setting

_NETTY = "belongs to Netty's buffers"
_BUFFERS = "the kernel sizes the buffers of sockets"
_FEW_CALLS = "a broker only calls name servers, a few times a minute; registerBrokerTimeoutMills bounds the call"
_WORKERS = "callbacks run where the response arrives"
_TLS = "TLS is not built; put a TLS proxy before the port, and name it in proxyProtocolFrom"


class TlsMode(enum.Enum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@attrs.frozen(kw_only=True)
class ServerConfig:
    """What the reference calls NettyServerConfig. Also read from the name server's file."""

    listen_port: int = setting(
        0,
        "listenPort",
        "Port that clients dial. A broker also takes listenPort - 2 (the VIP port: everything but pulls); "
        "listenPort + 1 is kept for replication.",
        default_text="broker 10911, name server 9876",
        at_least=1,
        at_most=65_535,
    )
    bind_address: str = setting(
        "127.0.0.1",
        "bindAddress",
        "Address to listen on. The default serves this machine only, since requests are not authenticated; `0.0.0.0` "
        "(the reference's habit) or `::` serves every network that the host is in.",
    )
    server_worker_threads: int = setting(
        8,
        "serverWorkerThreads",
        "Decoding threads; given, it sets codecWorkers.",
        default_text="codecWorkers",
    )
    server_callback_executor_threads: int = setting(
        0,
        "serverCallbackExecutorThreads",
        "Threads for callbacks.",
        ignored=_WORKERS,
    )
    server_selector_threads: int = setting(
        3,
        "serverSelectorThreads",
        "Selector threads; given, it sets selectorWorkers.",
        at_least=1,
        default_text="selectorWorkers",
    )
    server_oneway_semaphore_value: int = setting(
        256,
        "serverOnewaySemaphoreValue",
        "Most one-way requests to clients under way.",
        ignored="a push is written or dropped; nothing waits",
    )
    server_async_semaphore_value: int = setting(
        64,
        "serverAsyncSemaphoreValue",
        "Most requests to clients that wait for an answer.",
        unit="requests",
        at_least=1,
        ignored="requests to clients are few, and each ends with its time",
    )
    server_channel_max_idle_time_seconds: int = setting(
        120,
        "serverChannelMaxIdleTimeSeconds",
        "A connection without traffic for this long is closed. Clients send a heartbeat every 30 s.",
        unit="s",
        at_least=1,
    )
    server_socket_snd_buf_size: int = setting(
        0,
        "serverSocketSndBufSize",
        "Send buffer of a connection; 0 leaves it to the kernel.",
        unit="bytes",
        ignored=_BUFFERS,
    )
    server_socket_rcv_buf_size: int = setting(
        0,
        "serverSocketRcvBufSize",
        "Receive buffer of a connection; 0 leaves it to the kernel.",
        unit="bytes",
        ignored=_BUFFERS,
    )
    write_buffer_high_water_mark: int = setting(
        0,
        "writeBufferHighWaterMark",
        "Unsent bytes at which a connection counts as choked.",
        unit="bytes",
        ignored=_NETTY,
    )
    write_buffer_low_water_mark: int = setting(
        0,
        "writeBufferLowWaterMark",
        "Unsent bytes at which it no longer does.",
        unit="bytes",
        ignored=_NETTY,
    )
    server_socket_backlog: int = setting(
        1_024,
        "serverSocketBacklog",
        "Connections that may wait to be accepted.",
        unit="connections",
        at_least=1,
    )
    server_pooled_byte_buf_allocator_enable: bool = setting(
        True,
        "serverPooledByteBufAllocatorEnable",
        "Pool buffers.",
        ignored=_NETTY,
    )
    use_epoll_native_selector: bool = setting(
        False,
        "useEpollNativeSelector",
        "Use epoll.",
        ignored="epoll is always used",
    )
    tls_server_mode: TlsMode = setting(
        TlsMode.DISABLED,
        "tls.server.mode",
        "disabled serves plain connections only; permissive both kinds; enforcing TLS only.",
        only_default=_TLS,
    )
    tls_server_key_path: str | None = setting(None, "tls.server.keyPath", "Private key (PEM, PKCS#8).", ignored=_TLS)
    tls_server_cert_path: str | None = setting(None, "tls.server.certPath", "Certificate chain (PEM).", ignored=_TLS)


@attrs.frozen(kw_only=True)
class ClientConfig:
    """What the reference calls NettyClientConfig: the broker's calls to name servers and to its master."""

    client_worker_threads: int = setting(4, "clientWorkerThreads", "Decoding threads.", ignored=_WORKERS)
    client_callback_executor_threads: int = setting(
        0,
        "clientCallbackExecutorThreads",
        "Threads for callbacks.",
        ignored=_WORKERS,
        default_text="cores",
    )
    client_oneway_semaphore_value: int = setting(
        65_535,
        "clientOnewaySemaphoreValue",
        "Most one-way requests under way.",
        unit="requests",
        ignored=_WORKERS,
    )
    client_async_semaphore_value: int = setting(
        65_535,
        "clientAsyncSemaphoreValue",
        "Most requests that wait for an answer.",
        unit="requests",
        at_least=1,
        ignored=_FEW_CALLS,
    )
    connect_timeout_millis: int = setting(
        3_000,
        "connectTimeoutMillis",
        "How long a connection may take to open.",
        unit="ms",
        at_least=1,
        ignored=_FEW_CALLS,
    )
    channel_not_active_interval: int = setting(
        60_000,
        "channelNotActiveInterval",
        "Nothing.",
        unit="ms",
        ignored="the reference does not read it either",
    )
    client_channel_max_idle_time_seconds: int = setting(
        120,
        "clientChannelMaxIdleTimeSeconds",
        "A connection without traffic for this long is closed.",
        unit="s",
        at_least=1,
        ignored=_FEW_CALLS,
    )
    client_socket_snd_buf_size: int = setting(
        0,
        "clientSocketSndBufSize",
        "Send buffer; 0 leaves it to the kernel.",
        unit="bytes",
        ignored=_BUFFERS,
    )
    client_socket_rcv_buf_size: int = setting(
        0,
        "clientSocketRcvBufSize",
        "Receive buffer; 0 leaves it to the kernel.",
        unit="bytes",
        ignored=_BUFFERS,
    )
    client_pooled_byte_buf_allocator_enable: bool = setting(
        False,
        "clientPooledByteBufAllocatorEnable",
        "Pool buffers.",
        ignored=_NETTY,
    )
    client_close_socket_if_timeout: bool = setting(
        True,
        "clientCloseSocketIfTimeout",
        "One call that times out closes its connection.",
        ignored=_FEW_CALLS,
    )
    use_tls: bool = setting(False, "useTLS", "Call name servers and the master by TLS.", only_default=_TLS)
