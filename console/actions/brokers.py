"""Brokers: their settings, and whether clients may send to them."""

from functools import partial

from ...client.errors import NoRouteError
from ...protocol.bodies.topic import PERM_WRITE
from ...protocol.codec import java_properties
from ..access.rights import Right
from ..clusters.clusters import Watched
from ..texts import Text
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .places import chosen

# Settings that take effect at run time and name no path, address, class or command.
ALLOWED = (
    "accessMessageInMemoryMaxRatio",
    "autoCreateSubscriptionGroup",
    "autoCreateTopicEnable",
    "brokerPermission",
    "cleanFileForciblyEnable",
    "clientAsyncSemaphoreValue",
    "clientCloseSocketIfTimeout",
    "coldDataFlowControlEnable",
    "compactionScheduleInternal",
    "deleteCommitLogFilesInterval",
    "deleteConsumeQueueFilesInterval",
    "deleteWhen",
    "destroyMapedFileIntervalForcibly",
    "diskMaxUsedSpaceRatio",
    "enableMixedMessageType",
    "enablePropertyFilter",
    "enableRetryTopicV2",
    "fileReservedTime",
    "flushCommitLogLeastPages",
    "haMaxGapNotInSync",
    "haMaxTimeSlaveNotCatchup",
    "litePullMessageEnable",
    "longPollingEnable",
    "maxMessageSize",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "maxTransferCountOnMessageInMemory",
    "notifyConsumerIdsChangedEnable",
    "osPageCacheBusyTimeOutMills",
    "popCkStayBufferTime",
    "recallMessageEnable",
    "rejectPullConsumerEnable",
    "rejectTransactionMessage",
    "sendThreadPoolQueueCapacity",
    "slaveReadEnable",
    "timerMaxDelaySec",
    "traceOn",
    "transactionCheckInterval",
    "transactionCheckMax",
    "transactionTimeOut",
    "transferMsgByHeap",
    "useServerSideResetOffset",
    "waitTimeMillsInSendQueue",
)
VALUE_CHARS_MAX = 100
TOPICS_ASKED = 20  # of a broker, for a preview


async def _set(watched: Watched, values: Values, pins: Pins) -> Plan:
    name, value = values["setting"], values["value"]
    if not all(one.isascii() and (one.isalnum() or one in " .:_%-") for one in value):
        raise Unfit(
            "the value is %(value)s; give letters, digits, and the signs . : _ %% -",
            value=f"{value!r}",
        )
    addresses = await chosen(watched, values["brokers"])
    plan = Plan()
    for broker, address in addresses.items():
        settings = java_properties.parse(await watched.admin.broker_config(address))
        before = settings.get(name)
        if before is None:
            plan.refuse(
                "broker %(broker)s has no setting %(name)s; leave this broker out",
                broker=broker,
                name=name,
            )
        elif before != value:
            do = partial(watched.admin.update_broker_config, address, {name: value})
            plan.changes.append(
                Change(
                    Text("broker %(name)s", name=broker),
                    f"{name}={before}",
                    f"{name}={value}",
                    do,
                )
            )
    if not plan.changes and not plan.refusals:
        plan.refuse("%(name)s is %(value)s there already", name=name, value=value)
    return plan


async def _permission(watched: Watched, values: Values, is_wipe: bool) -> Plan:
    broker = values["broker"]
    await chosen(watched, broker)
    writable, asked = await _writable(watched, broker)
    plan = Plan()
    change = watched.admin.wipe_write_permission if is_wipe else watched.admin.add_write_permission

    async def do() -> str:
        return Text("%(count)s topics changed", count=f"{await change(broker):,}")

    before = Text(
        "name servers say that %(writable)s of %(asked)s of its topics can be written",
        writable=writable,
        asked=asked,
    )
    after = Text("clients send to other brokers") if is_wipe else Text("clients may send to it")
    plan.changes.append(Change(Text("name servers"), before, after, do))
    plan.notes.append(
        Text(
            "the broker's own settings stay; a broker that registers again after a name "
            "server's restart is writable again"
        )
        if is_wipe
        else Text("topics that were read only before get the permission to be written, too")
    )
    return plan


async def _writable(watched: Watched, broker: str) -> tuple[int, int]:
    """The number of a broker's topics that the name servers list as writable, and of all asked."""
    rows = watched.collector.topics().values()
    names = [row.name for row in rows if broker in row.brokers][:TOPICS_ASKED]
    writable = asked = 0
    for name in names:
        try:
            queues = (await watched.admin.route(name)).queue_datas
        except NoRouteError:  # it was deleted after the last sample
            continue
        asked += 1
        for queue in queues:
            writable += queue.broker_name == broker and bool(queue.perm & PERM_WRITE)
    return writable, asked


async def _wipe(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _permission(watched, values, True)


async def _add(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _permission(watched, values, False)


BROKER = Field("broker", "Broker", is_required=True, chars_max=255, names="brokers")
ACTIONS = (
    Action(
        "broker-set",
        "Change a broker's setting",
        (
            Field("setting", "Setting", "choice", True, choices=ALLOWED),
            Field("value", "Value", is_required=True, chars_max=VALUE_CHARS_MAX),
            Field("brokers", "Brokers", note="names with commas between; empty: all masters"),
        ),
        _set,
        right=Right.ADMINISTER,
        typed="setting",
    ),
    Action(
        "broker-wipe",
        "Take the write permission of a broker",
        (BROKER,),
        _wipe,
        right=Right.ADMINISTER,
        typed="broker",
    ),
    Action(
        "broker-write",
        "Give the write permission back to a broker",
        (BROKER,),
        _add,
        right=Right.ADMINISTER,
        typed="broker",
    ),
)
