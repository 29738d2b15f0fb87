"""What must hold of consumers that consume in order: a queue has one holder of its lock, always.

A consumer goes on with a lock for `LOCK_SECONDS`, also after the broker that gave it is gone.
"""

from aerobee.client import Consumer, MessageQueue


class LockWatch:
    """A check to be called twice a second; `faults` are findings that can't be."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._consumers: dict[str, Consumer] = {}

    def began(self, machine: str, consumer: Consumer) -> None:
        """The machine consumes in order with this consumer from now on, and no other."""
        self._consumers[machine] = consumer

    def check(self, now: float) -> None:
        """Compare what the consumers believe."""
        holders: dict[MessageQueue, str] = {}
        for machine, consumer in self._consumers.items():
            for queue in locked_queues(consumer, now):
                first = holders.setdefault(queue, machine)
                if first != machine:
                    self._fault(f"{queue} is locked by {first} and by {machine}")

    def _fault(self, text: str) -> None:
        if text not in self.faults:
            self.faults.append(text)


def locked_queues(consumer: Consumer, now: float) -> list[MessageQueue]:
    """The queues whose lock this consumer believes to have."""
    service = consumer._service
    table = {} if service is None else service.assigned.table
    return [queue for queue, one in table.items() if one.is_locked(now)]
