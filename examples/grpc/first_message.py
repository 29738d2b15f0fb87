"""Send a message and receive it, with rocketmq-python-client through `aerobee up --grpc`."""

import sys

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

endpoints = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8081"
configuration = ClientConfiguration(endpoints, Credentials())
producer = Producer(configuration, ["orders"])
producer.startup()
message = Message()
message.topic, message.body = "orders", b"12 EUR"
print("sent", producer.send(message).message_id)
producer.shutdown()

subscription = {"orders": FilterExpression("*")}
consumer = SimpleConsumer(configuration, "billing", subscription, await_duration=5)
consumer.startup()
while not (received := consumer.receive(max_message_num=16, invisible_duration=30)):
    pass  # nothing came within 5 s
for each in received:
    print("received", each.body.decode())
    consumer.ack(each)
consumer.shutdown()
