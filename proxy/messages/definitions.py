"""The message classes of RocketMQ 5, made from the descriptor set beside the definitions.

They live in a pool of their own, so that another copy of the same definitions, such as that of
rocketmq-python-client, can be in the same process.
"""

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"
DESCRIPTOR_SET = "messaging.desc"


def descriptor_set() -> Any:
    """The compiled definitions, as a FileDescriptorSet."""
    folder = resources.files(f"{__package__.rpartition('.')[0]}.definitions")
    data = folder.joinpath(DESCRIPTOR_SET).read_bytes()
    return descriptor_pb2.FileDescriptorSet.FromString(data)


def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_set().file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _pool()


def message(name: str, package: str = PACKAGE) -> Any:
    """The class of this message of the package. KeyError if there is none."""
    found = POOL.FindMessageTypeByName(f"{package}.{name}")
    return message_factory.GetMessageClass(found)


def enum(name: str) -> dict[str, int]:
    """The numbers of an enum of the package by name."""
    found = POOL.FindEnumTypeByName(f"{PACKAGE}.{name}")
    return {value.name: value.number for value in found.values}
