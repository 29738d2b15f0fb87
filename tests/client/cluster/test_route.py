"""Routes: writable and readable queues and their order."""

import pytest
from aerobee.client.cluster.route import MessageQueue, read_route
from aerobee.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from aerobee.protocol.bodies.topic_queue_mapping import TopicQueueMappingInfo


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}/{queue.queue_id}" for queue in queues]


def answer(*queues: QueueData, slaves: tuple[str, ...] = (), order: str = "") -> TopicRouteData:
    brokers = {queue.broker_name for queue in queues}
    return TopicRouteData(
        order or None,
        list(queues),
        [BrokerData("c", name, {1 if name in slaves else 0: "127.0.0.1:1"}) for name in brokers],
    )


def test_queues_are_in_broker_order_and_writing_and_reading_have_their_own_numbers() -> None:
    route = read_route("t", answer(QueueData("b", 1, 2, 6), QueueData("a", 3, 1, 6)))
    assert names(route.publish) == ["a/0", "b/0", "b/1"]
    assert sorted(names(route.subscribe)) == ["a/0", "a/1", "a/2", "b/0"]


def test_permissions_decide_what_can_be_written_and_read() -> None:
    route = read_route("t", answer(QueueData("r", 1, 1, 4), QueueData("w", 1, 1, 2)))
    assert names(route.publish) == ["w/0"]
    assert names(route.subscribe) == ["r/0"]


def test_a_broker_without_a_master_can_be_read_and_not_written() -> None:
    route = read_route("t", answer(QueueData("a", 1, 1, 6), slaves=("a",)))
    assert names(route.publish) == []
    assert names(route.subscribe) == ["a/0"]


def test_an_order_configuration_decides_the_queues_and_their_order() -> None:
    route = read_route("t", answer(QueueData("a", 4, 4, 6), order="b:2;a:1"))
    assert names(route.publish) == ["b/0", "b/1", "a/0"]
    assert route.ordered


def test_a_broken_order_configuration_is_named() -> None:
    with pytest.raises(ValueError, match=r"'b;a:1'.*broker:queues"):
        read_route("t", answer(QueueData("a", 4, 4, 6), order="b;a:1"))


@pytest.mark.parametrize("order", ["", "a:2000000000"])
def test_more_queues_than_can_be_are_refused_at_once(order: str) -> None:
    rows = QueueData("a", 4 if order else 2_000_000_000, 4, 6)
    with pytest.raises(ValueError, match="broker a has 2000000000 queues, the limit is 65536"):
        read_route("t", answer(rows, order=order))


def test_a_borrowed_route_is_cut_by_the_read_queues() -> None:
    route = read_route("t", answer(QueueData("a", 2, 8, 7), QueueData("b", 8, 8, 7)), queues_max=4)
    assert names(route.publish) == ["a/0", "a/1", "b/0", "b/1", "b/2", "b/3"]


def info(broker: str, epoch: int, total: int, *led: int) -> TopicQueueMappingInfo:
    return TopicQueueMappingInfo(
        "T", total_queues=total, bname=broker, epoch=epoch, curr_id_map=dict.fromkeys(led, 0)
    )


def test_the_queues_of_a_static_topic_are_logical_and_the_newest_mapping_says_who_leads() -> None:
    told = answer(QueueData("a", 4, 4, 6), QueueData("b", 1, 1, 6))
    told.topic_queue_mapping_by_broker = {
        "a": info("a", 1, 4, 0, 1, 3),
        "b": info("b", 2, 4, 1),
    }
    route = read_route("T", told)
    assert names(route.publish) == [f"__syslo__global__/{number}" for number in range(4)]
    assert set(route.subscribe) == set(route.publish)
    assert [route.leaders[queue] for queue in route.publish] == ["a", "b", "__syslo__none__", "a"]
    assert route.broker_names == ["a", "b"]


def test_a_static_topic_with_more_queues_than_can_be_is_refused_at_once() -> None:
    told = answer(QueueData("a", 4, 4, 6))
    told.topic_queue_mapping_by_broker = {"a": info("a", 1, 1 << 30, 0)}
    with pytest.raises(ValueError, match="broker a has 1073741824 queues, the limit is 65536"):
        read_route("T", told)
