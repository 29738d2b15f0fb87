"""The settings and the report of a broker: defaults, groups by meaning, and how brokers differ.

The defaults of aerobee's brokers are made from their settings (aerobee.tools.generated). Those of
RocketMQ's brokers are what a broker 5.3.3 without settings tells, and what its classes have for
keys that such a broker does not tell; null is not set. A key that the file lacks has a default
that is not known.

A setting of PLACES or PROCESSORS has no default: it says what the broker is called and where it is,
or RocketMQ computes it from the number of processors. It never differs from a default, and stands
apart where brokers are compared. The addresses of other servers, such as name servers and
controllers, are settings like all others.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ...client.admin.brokers import AEROBEE_VERSION
from ..clusters.samples import BrokerSample
from ..texts import Text
from . import answers

FOLDER = Path(__file__).with_name("defaults")
SETTINGS_MAX = 2_000  # of one broker, and of its report; RocketMQ 5.3.3 has 410 and 60
SECRETS = ("secret", "password", "credential", "accesskey", "token", "authenticationuser", "header")
# What a broker is called and where it is: names, addresses, ports, folders and files.
PLACES = frozenset(
    {
        *("brokerClusterName", "brokerId", "brokerName", "clusterName", "configName"),
        *("dLegerGroup", "dLegerPeers", "dLegerSelfId"),
        *("bindAddress", "brokerIP1", "brokerIP2", "haListenPort", "haMasterAddress"),
        *("listenPort", "metricsPromExporterHost", "metricsPromExporterPort"),
        *("authConfigPath", "brokerConfigPath", "readOnlyCommitLogStorePaths", "rocketmqHome"),
        *("storePathBrokerIdentity", "storePathCommitLog", "storePathDLedgerCommitLog"),
        *("storePathEpochFile", "storePathRootDir"),
    }
)
# What RocketMQ computes from the number of processors.
PROCESSORS = frozenset(
    {
        *("clientCallbackExecutorThreads", "endTransactionThreadPoolNums"),
        *("heartbeatThreadPoolNums", "litePullMessageThreadPoolNums"),
        *("processReplyMessageThreadPoolNums", "pullMessageThreadPoolNums"),
        *("putMessageFutureThreadPoolNums", "queryMessageThreadPoolNums"),
        "sendMessageThreadPoolNums",
    }
)
AEROBEE, ROCKETMQ = "aerobee", "rocketmq"
ROCKETMQ_VERSION = "5.3.3"  # whose defaults the file has
SLAVE_RATIO = "30"  # RocketMQ takes ten off a slave's accessMessageInMemoryMaxRatio

Patterns = Sequence[tuple[Text, str]]

OF_PLACE, OTHER = Text("Names, addresses and folders"), Text("Other")
# The groups of settings in the order of a page. The first pattern that is in the name decides.
SETTING_GROUPS: Patterns = (
    (Text("Access and TLS"), r"auth(en|or|from)|^auth|^acl[A-Z]|tls|secret|whitelist|^userCache"),
    (
        Text("Metrics and traces"),
        r"metric|trace|stats|^stat|sample|print|detail|commercial|fallbehind|estimateAcc",
    ),
    (Text("Timer and transactions"), r"timer|transaction|delay|schedule(Async|Message)|recall"),
    (
        Text("High availability and controller"),
        r"^ha[A-Z]|haTransfer|replica|slave|controller|election|dleg|brokerRole|escape|preOnline|learner"
        r"|sync(FromLast|Master|Broker|State)|broker(Heartbeat|NotActive|Container)|duplication"
        r"|sendHeartbeat|preferredLeader|highSpeed|awaitingAck",
    ),
    (
        Text("Network and threads"),
        r"netty|socket|channel(?!groups)|^client|^server(?!load)|namesrv|name-?server|register"
        r"|registration|thread(?!hold)|semaphore|queuecapacity|waittime|networkflow|fastfailure"
        r"|forwardtimeout|connecttimeout|callback|reconnect|writebuffer|epoll|shutdown|asyncsend"
        r"|socks",
    ),
    (
        Text("Consumers and pop"),
        r"pop|revive|subscription|pull|polling|filter|cold|loadbalance|broadcast|append(ck|ack)"
        r"|inmemory|ondisk|messageindisk|requestmode|querymaxnum|retrytopicv|transfer(?!byte)"
        r"|calcfilter|bloom|serversidereset|notify|replymessage|consumer|slowly|messageinmemory",
    ),
    (
        Text("Topics and messages"),
        r"topic(?!queuelock)|lmq|messagesize|mixedmessage|batchpush|msgsnum|permission|region"
        r"|multidispatch",
    ),
    (
        Text("Retention and disk"),
        r"^clean|^delete|reserved|^disk|logicaldisk|destroy|redelete|retain|cleanexpired"
        r"|batchdelete",
    ),
    (
        Text("Storage and flush"),
        r"store|flush|mapped|maped|commit|dispatch|index|crc|rocksdb|recover|warm|swap|transient"
        r"|compaction|reput|consumequeue|logic|putmessage|putmsg|lock|readahead|checksum|memtable"
        r"|offsetmap|bcq|hashslot|pagecache|travelcq|isolatelog|maxasync",
    ),
)
REPORT_GROUPS: Patterns = (
    (Text("Version and start"), r"^broker|version|^boot|^runtime$|^startAccept"),
    (Text("Requests that wait"), r"ThreadPool|QueueSize|HeadWait"),
    (Text("Timer and delay levels"), r"^timer|^schedule|recall"),
    (Text("Messages in and out"), r"^(put|get|msg)"),
    (
        Text("Storage and flush"),
        r"commitLog|consumeQueue|dispatch|flush|Disk|earliest|pageCache|transient|logHeld|notStored",
    ),
)


@cache
def defaults(kind: str) -> Mapping[str, str | None]:
    """The defaults of aerobee's or of RocketMQ's brokers; None: not set."""
    found: dict[str, str | None] = json.loads((FOLDER / f"{kind}.json").read_text("utf-8"))
    return found


def kind_of(broker: BrokerSample) -> str:
    """Whether a broker is one of aerobee or of RocketMQ."""
    return AEROBEE if AEROBEE_VERSION in broker.runtime else ROCKETMQ


def version_of_defaults(broker: BrokerSample) -> tuple[str, bool]:
    """The version that has the defaults, and whether it is the broker's."""
    if kind_of(broker) == AEROBEE:
        ours = version("aerobee")
        return f"aerobee {ours}", broker.runtime[AEROBEE_VERSION] == ours
    is_same = broker.version == f"V{ROCKETMQ_VERSION.replace('.', '_')}"
    return f"RocketMQ {ROCKETMQ_VERSION}", is_same


def put_ms(broker: BrokerSample) -> float | None:
    """The time in ms within which a broker stored 99 % of messages. Ours do not measure it."""
    if kind_of(broker) == AEROBEE:
        return None
    text = broker.runtime.get("putLatency99", "")
    return float(text) if re.fullmatch(r"\d{1,12}(\.\d{1,6})?", text, re.ASCII) else None


def settings_of(broker: BrokerSample, values: Mapping[str, str]) -> list[answers.Setting]:
    """The settings, each with its default: what differs from it first, and in the order of their
    groups."""
    known = _defaults_of(broker, values)
    rows = [_setting(name, value, known) for name, value in values.items()]
    return sorted(
        rows, key=lambda row: (not row["differs"], _ORDER.index(row["group"]), row["name"])
    )


def report_of(values: Mapping[str, str]) -> list[answers.ReportRow]:
    """What a broker reports, in the order of the groups."""
    order: list[str] = [*(group for group, _ in REPORT_GROUPS), OTHER]
    rows: list[answers.ReportRow] = [
        {"name": name, "value": value, "group": _group(name, REPORT_GROUPS)}
        for name, value in values.items()
    ]
    return sorted(rows, key=lambda row: (order.index(row["group"]), row["name"]))


def differing(
    brokers: Mapping[str, BrokerSample], told: Mapping[str, Mapping[str, str]]
) -> list[answers.Differing]:
    """The settings in which the brokers that told theirs differ, those of the machine last."""
    known = [_defaults_of(brokers[key], values) for key, values in told.items()]
    rows: list[answers.Differing] = []
    for name in sorted({name for values in told.values() for name in values}):
        values = {key: each.get(name) for key, each in told.items()}
        if len(set(values.values())) < 2:
            continue
        rows.append(
            {
                "name": name,
                "values": {key: safe(name, value) for key, value in values.items()},
                "defaults": [*dict.fromkeys(each[name] for each in known if name in each)],
                "is_of_machine": name in PLACES | PROCESSORS,
            }
        )
    return sorted(rows, key=lambda row: row["is_of_machine"])


def safe(name: str, value: str | None) -> str | None:
    """A setting without what is secret: values are told apart by a mark."""
    if not value or not any(word in name.lower() for word in SECRETS):
        return value
    return f"(secret, mark {hashlib.sha256(value.encode()).hexdigest()[:4]})"


def group_of(name: str) -> Text:
    """The group of a setting."""
    return OF_PLACE if name in PLACES else _group(name, SETTING_GROUPS)


def _setting(name: str, value: str, known: Mapping[str, str | None]) -> answers.Setting:
    return {
        "name": name,
        "value": safe(name, value),
        "default": known.get(name),
        "differs": value != known[name] if name in known else None,
        "is_of_machine": name in PLACES | PROCESSORS,
        "group": group_of(name),
    }


def _defaults_of(broker: BrokerSample, values: Mapping[str, str]) -> Mapping[str, str | None]:
    """The defaults for a broker, of which a few follow from its other settings."""
    kind = kind_of(broker)
    if kind == AEROBEE:
        mode = values.get("enableControllerMode", "false")
        return {**defaults(kind), "allAckInSyncStateSet": mode}
    if values.get("brokerRole") == "SLAVE":
        return {**defaults(kind), "accessMessageInMemoryMaxRatio": SLAVE_RATIO}
    return defaults(kind)


def _group(name: str, patterns: Iterable[tuple[Text, str]]) -> Text:
    found = (group for group, pattern in patterns if re.search(pattern, name, re.IGNORECASE))
    return next(found, OTHER)


_ORDER: list[str] = [OF_PLACE, *(group for group, _ in SETTING_GROUPS), OTHER]
