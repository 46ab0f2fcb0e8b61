"""An order in a local database and its message: both are there, or neither, wherever a process dies.

NAMESRV_ADDR=127.0.0.1:9876 python docs/use/examples/outbox_orders.py shop.db 7
"""

import asyncio
import sqlite3
import sys
import threading

from rocketpy.client import LocalTransactionState, Message, ReceivedMessage, TransactionProducer
from rocketpy.client.typed import SqliteSeenIds, TypedConsumer, TypedTopic, once

Order = dict[str, int]
ORDERS = TypedTopic[Order]("Orders")
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, total INTEGER);
CREATE TABLE IF NOT EXISTS outcomes (key TEXT PRIMARY KEY, committed INTEGER);
"""


class Outbox:
    """The local transactions: an outcome is written together with its order."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()  # both functions run in threads
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.executescript(SCHEMA)

    def execute(self, message: Message, order: Order) -> LocalTransactionState:
        try:
            with self._lock, self._database:  # commits, or rolls back
                self._database.execute("INSERT INTO outcomes VALUES (?, 1)", message.keys)
                self._database.execute("INSERT INTO orders VALUES (?, ?)", (order["number"], order["total"]))
        except sqlite3.IntegrityError:  # ordered before, or `check` was faster
            return LocalTransactionState.ROLLBACK
        return LocalTransactionState.COMMIT

    def check(self, message: ReceivedMessage) -> LocalTransactionState:
        """Answer for any message of the group, also of a process that died. No outcome becomes one: rolled back."""
        with self._lock, self._database:
            self._database.execute("INSERT OR IGNORE INTO outcomes VALUES (?, 0)", message.keys)
            query = "SELECT committed FROM outcomes WHERE key = ?"
            (committed,) = self._database.execute(query, message.keys).fetchone()
        return LocalTransactionState.COMMIT if committed else LocalTransactionState.ROLLBACK

    def close(self) -> None:
        self._database.close()


async def order(path: str, number: int) -> LocalTransactionState:
    outbox = Outbox(path)
    try:
        async with TransactionProducer("shop", outbox) as producer:
            new = {"number": number, "total": 12}
            result = await producer.send_in_transaction(ORDERS.message(new, tags="booked", keys=f"order-{number}"), new)
            return result.state
    finally:
        outbox.close()


def shipping(seen: SqliteSeenIds) -> TypedConsumer[Order]:
    """Ship each order once: the shipment is in the database of the ids."""
    with seen.transaction("schema") as database:
        if database is not None:
            database.execute("CREATE TABLE shipments (number INTEGER)")

    @once(seen, key=lambda message: message.keys[0])
    def ship(database: sqlite3.Connection, order: Order, message: ReceivedMessage) -> None:
        database.execute("INSERT INTO shipments VALUES (?)", (order["number"],))

    return TypedConsumer("shipping", ORDERS, ship, tags="booked")


async def main(path: str, number: int) -> None:
    with SqliteSeenIds(f"{path}.shipped") as seen:
        async with shipping(seen):
            print((await order(path, number)).name)
            await asyncio.sleep(5)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
