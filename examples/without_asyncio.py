"""The client for programs without an event loop: the same names in `aerobee.client.blocking`."""

from aerobee.client import Message
from aerobee.client.blocking import Consumer, Producer

with Producer(group="shop") as producer:
    producer.send(Message("orders", b"12 EUR"))

with Consumer(group="billing", topics=["orders"], start="earliest") as consumer:
    for message in consumer:
        with message.process():
            print(message.body.decode())
        break
