"""A test with a broker of its own: `pytest examples/test_reminders.py`."""

from datetime import timedelta

from aerobee.client import Message
from aerobee.client.blocking import Consumer, Producer
from aerobee.testing import LocalCluster


def test_a_reminder_comes_after_two_hours(aerobee_cluster: LocalCluster) -> None:
    address = aerobee_cluster.name_server
    with Producer(address) as producer:
        producer.send(Message("reminders", b"pay!", delay=timedelta(hours=2)))
    aerobee_cluster.advance(hours=2)  # takes milliseconds
    with Consumer(address, group="mailer", topics=["reminders"], start="earliest") as consumer:
        message = consumer.receive(timeout=10)
        assert message is not None
        assert message.body == b"pay!"
        message.ack()
