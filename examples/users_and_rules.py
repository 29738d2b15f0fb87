"""Make a user and say what it may do, where the broker has access control on."""

from aerobee.client import Message, Security
from aerobee.client.blocking import Admin, Producer

with Admin(security=Security("admin", "choose-one")) as admin:
    admin.create_topic("orders")
    admin.create_user("shop", "a-secret")
    admin.allow("shop", ["Topic:orders", "Group:billing*"], ["Pub", "Sub", "Get"])

with Producer(group="billing", security=Security("shop", "a-secret")) as producer:
    print(producer.send(Message("orders", b"12 EUR")).status)
