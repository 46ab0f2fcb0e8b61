"""Hooks: layers around each send and each delivery of messages, for metrics, tracing, encryption.

    class Timed(Hook):
        async def send(self, sending, call_next):
            begin_s = time.monotonic()
            try:
                return await call_next(sending.messages)
            finally:
                print(f"{len(sending.messages)} messages took {time.monotonic() - begin_s} s")

    options = ProducerOptions(hooks=(Timed(),))

Runs: in the client's loop, trio's or asyncio's; that of a blocking client is a thread of its own.

    layer          Hook, its arguments, and the chain that a client makes of its hooks
    opentelemetry  spans, and their context in the properties of messages (the extra `opentelemetry`)
    prometheus     counters and histograms
"""

from .layer import ConsumeNext, Delivery, Hook, HookChain, Sending, SendNext

__all__ = ["ConsumeNext", "Delivery", "Hook", "HookChain", "SendNext", "Sending"]
