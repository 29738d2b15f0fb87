"""A message that exists only if a row in a database does.

The broker keeps the message back until the block ends. If this program dies in the block, the
broker asks `check`, in the next process of the group, how the transaction ended.
"""

import asyncio
import sqlite3

from aerobee.client import Message, MessageView, TransactionProducer, TransactionState

database = sqlite3.connect("shop.sqlite", isolation_level=None)
database.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total INTEGER)")


async def check(message: MessageView) -> TransactionState:
    found = database.execute("SELECT 1 FROM orders WHERE id = ?", message.keys).fetchone()
    return TransactionState.COMMIT if found else TransactionState.ROLLBACK


async def main() -> None:
    async with TransactionProducer(group="shop", check=check) as producer:
        order = Message("orders", b"12 EUR", keys=["o-1"])
        async with producer.transaction(order):  # leaving commits; raising rolls back
            database.execute("INSERT OR REPLACE INTO orders VALUES ('o-1', 12)")
    print("committed")


asyncio.run(main())
