"""A worker under asyncio: consumes until SIGTERM or Ctrl-C, lets running handlers end, and leaves its group.

NAMESRV_ADDR=127.0.0.1:9876 python docs/use/examples/asyncio_worker.py
"""

import asyncio
import signal

from rocketpy.client import PushConsumer, PushOptions, ReceivedMessage


async def handle(message: ReceivedMessage) -> None:
    await asyncio.sleep(0.01)  # the work
    print(message.body.decode(), flush=True)


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    options = PushOptions(concurrency=10, shutdown_grace=30.0)  # seconds for handlers that run at the signal
    async with PushConsumer("billing", {"Orders": "*"}, handle, options=options):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
