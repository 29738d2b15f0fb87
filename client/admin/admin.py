"""Reading and changing a cluster: every request of an administrator as a method."""

from ..cluster.route import QUEUES_MAX
from .access import AccessAdmin
from .dead_letters import DeadLetterAdmin
from .drain import DrainAdmin
from .messages import MessageAdmin
from .shrinking import ShrinkAdmin
from .topics import READ_WRITE

__all__ = ["QUEUES_MAX", "READ_WRITE", "Admin"]


class Admin(DrainAdmin, ShrinkAdmin, DeadLetterAdmin, MessageAdmin, AccessAdmin):
    """Asks and changes a cluster.

    async with Admin("127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=8)
        print(await admin.topics())
    """
