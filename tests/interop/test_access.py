"""Access control on our broker and on the real one: the same users, permissions and texts.

Both brokers go through the same steps. The real mqadmin creates users and access lists and signs
with its tools.yml. RocketMQ's producer and consumer sign as one of the users and try operations
that are allowed and operations that are denied.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aerobee.harness import java_side
from aerobee.harness.clusters import (
    CLUSTER_NAME,
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.security.signature import signed

from .programs import SECONDS, Java, Mqadmin, side_by_side, wait_until

ADMIN, ADMIN_SECRET = "admin", "12345678"
SHOP, SHOP_SECRET = "shop", "a-secret"
PLAIN, PLAIN_SECRET = "plain", "plain-secret"
AUTH = "org.apache.rocketmq.auth"

Outputs = dict[str, str]


def settings(folder: Path) -> dict[str, str | int]:
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": (f"{AUTH}.authentication.provider.DefaultAuthenticationProvider"),
        "authenticationMetadataProvider": (
            f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": (
            f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"
        ),
        "authConfigPath": str(folder / "auth"),
        "initAuthenticationUser": f'{{"username":"{ADMIN}","password":"{ADMIN_SECRET}"}}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
    }


class Tool:
    """The real mqadmin; it signs as the user it is given."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self._keys = home / "conf" / "tools.yml"
        self._keys.parent.mkdir(parents=True)
        self.program = java_side.start("Admin", home=home)
        self.run = Mqadmin(self.program)
        self.name, self.broker = ("-n", cluster.namesrv), ("-b", cluster.broker)
        self.sign(ADMIN, ADMIN_SECRET)

    def sign(self, user: str, secret: str) -> None:
        self._keys.write_text(f"accessKey: {user}\nsecretKey: {secret}\n")

    def __call__(self, *words: str) -> str:
        return self.run(*words, *self.name, *self.broker)


def walk(cluster: Cluster, java: Java, home: Path) -> Outputs:  # noqa: PLR0915 - a story
    tool = Tool(cluster, home)
    outputs: Outputs = {}

    def note(title: str, *words: str) -> None:
        outputs[title] = tool(*words)

    def acl(command: str, resource: str, actions: str, *more: str) -> tuple[str, ...]:
        return (command, "-s", f"User:{SHOP}", "-r", resource, "-a", actions, *more)

    try:
        tool.program.wait_event("started", SECONDS)
        for topic in ("Orders", "Secret"):
            tool("updateTopic", "-t", topic, "-r", "2", "-w", "2")
        for topic in ("Orders", "Secret"):
            tool.run.until(
                lambda text: "readQueueNums" in text, "topicRoute", *tool.name, "-t", topic
            )
        note("listUser at first", "listUser")
        note("createUser", "createUser", "-u", SHOP, "-p", SHOP_SECRET, "-t", "Normal")
        note("createUser again", "createUser", "-u", SHOP, "-p", "other")
        note("createUser of one without rules", "createUser", "-u", PLAIN, "-p", PLAIN_SECRET)
        outputs["what one without rules may read"] = asyncio.run(reads(cluster, PLAIN))
        note("createUser without a type", "createUser", "-u", "guest", "-p", "guest-secret")
        note("getUser", "getUser", "-u", SHOP)
        note("getUser of nobody", "getUser", "-u", "nobody")
        note("updateUser", "updateUser", "-u", "guest", "-s", "disable")
        note("updateUser of nobody", "updateUser", "-u", "nobody", "-s", "disable")
        note("listUser", "listUser")
        note("listUser with a filter", "listUser", "-f", "ho")

        own = acl("createAcl", "Topic:Orders,Group:shop*", "Pub,Sub", "-i", "127.0.0.1/8")
        note("createAcl", *own, "-d", "Allow")
        note("createAcl for nobody", *("createAcl", "-s", "User:nobody", "-r", "Topic:a"),
             *("-a", "Pub", "-d", "Allow"))  # fmt: skip
        note("updateAcl", *acl("updateAcl", "Topic:Sec*", "All", "-d", "Deny"))
        note("updateAcl of what is there", *acl("updateAcl", "Topic:Old", "Get", "-d", "Allow"))
        note("getAcl", "getAcl", "-s", f"User:{SHOP}")
        note("getAcl of nobody", "getAcl", "-s", "User:nobody")
        note("getAcl of one without", "getAcl", "-s", "User:guest")
        note("listAcl", "listAcl")
        note("listAcl with a filter", "listAcl", "-s", SHOP, "-r", "Topic:O")
        note("deleteAcl of a resource", "deleteAcl", "-s", f"User:{SHOP}", "-r", "Topic:Old")
        note("listAcl after that", "listAcl")
        between = ("-f", cluster.broker, "-t", cluster.broker)
        outputs["copyUser"] = tool.run("copyUser", *tool.name, *between, "-u", "guest")
        outputs["copyAcl"] = tool.run("copyAcl", *tool.name, *between)

        signs = {"user": SHOP, "secret": SHOP_SECRET, "group": "shop-readers"}
        client = java.start("Signed", namesrv=cluster.namesrv, **signs)
        client.wait_event("started", SECONDS)
        for topic in ("Orders", "Secret"):
            answer = client.ask(f"send {topic} first", "answered", SECONDS)
            outputs[f"a send to {topic}"] = f"{answer['code']} {answer['text']}"
        client.ask("consume Orders", "consuming", SECONDS)
        wait_until(
            lambda: [each["key"] for each in client.events("message")] == ["first"],
            lambda: (cluster.kind, client.lines),
        )

        tool.sign(SHOP, SHOP_SECRET)
        note("listUser by one who may not", "listUser")
        status = ("topicStatus", *tool.name, "-t", "Secret")
        outputs["a topic's status by one who may not"] = tool.run(*status)
        tool.sign(SHOP, "guessed")
        note("listUser with a wrong password", "listUser")
        tool.sign("nobody", "guessed")
        note("listUser by nobody", "listUser")
        tool.sign("guest", "guest-secret")
        note("listUser by one who is disabled", "listUser")

        tool.sign(ADMIN, ADMIN_SECRET)
        note("deleteAcl", "deleteAcl", "-s", f"User:{SHOP}")
        note("deleteUser", "deleteUser", "-u", "guest")
        note("listAcl at last", "listAcl")
        note("listUser at last", "listUser")
    finally:
        tool.program.process.terminate()
        tool.program.wait(10)
    return outputs


async def reads(cluster: Cluster, user: str) -> str:
    """The response codes of the requests that list everything."""
    peers = Peers(sign=lambda fields, body: signed(fields, body, user, f"{user}-secret"))
    try:
        asked = (
            codes.GET_ALL_TOPIC_CONFIG,
            codes.GET_BROKER_RUNTIME_INFO,
            codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            codes.AUTH_LIST_USER,
        )
        answers = [await peers.request(cluster.broker, code, {}, b"", SECONDS) for code in asked]
    finally:
        await peers.close()
    return str([answer.code for answer in answers])


def prepare(cluster: Cluster, home: Path) -> Outputs:
    """Creates users and access lists before requests must be signed."""
    tool = Tool(cluster, home)
    try:
        tool.program.wait_event("started", SECONDS)
        about = ("-s", f"User:{SHOP}", "-r", "Topic:Orders", "-a", "Pub", "-d", "Allow")
        commands = (
            ("createUser", "-u", SHOP, "-p", SHOP_SECRET, "-t", "Normal"),
            ("updateUser", "-u", SHOP, "-s", "disable"),
            ("getUser", "-u", SHOP),
            ("createAcl", *about),
            ("updateAcl", *about),
            ("getAcl", "-s", f"User:{SHOP}"),
            ("listAcl",),
            ("deleteAcl", "-s", f"User:{SHOP}"),
            ("deleteUser", "-u", SHOP),
            ("listUser",),
        )
        return {" ".join(words): tool(*words) for words in commands}
    finally:
        tool.program.process.terminate()
        tool.program.wait(10)


def test_users_and_lists_created_before_access_control_is_enabled_stay(
    java: Java, tmp_path: Path
) -> None:
    kept = {
        key: value
        for key, value in settings(tmp_path).items()
        if key.endswith("MetadataProvider") or key == "authConfigPath"
    }
    ours = AerobeeCluster(tmp_path / "ours", SMALL_FILES | kept)
    real = JavaCluster(tmp_path / "real", kept, flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real) as clusters, ThreadPoolExecutor(2) as pool:
        homes = [tmp_path / "our-tool", tmp_path / "real-tool"]
        first, second = pool.map(prepare, clusters, homes)
    assert {title: in_words(text) for title, text in first.items()} == {
        title: in_words(text) for title, text in second.items()
    }


def in_words(output: str) -> list[str]:
    """The printed text without addresses; of an exception only the server's message."""
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", output)
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("at ", "... "))]
    # Our broker appends a reason or a remedy to RocketMQ's text; cut it off.
    return [re.sub(r"(?<=check signature failed)[.:].*?(?= BROKER|$)", "", line) for line in kept]


@pytest.fixture(scope="module")
def outputs(
    java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Outputs, Outputs]]:
    """The outputs of the same steps with our broker and with the real one."""
    folders = [tmp_path_factory.mktemp(kind) for kind in ("ours", "real")]
    ours = AerobeeCluster(folders[0], {**SMALL_FILES, **settings(folders[0])})
    real = JavaCluster(folders[1], settings(folders[1]), flags=TEST_BROKER_FLAGS)
    with side_by_side(ours, real) as clusters, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda cluster, folder: walk(cluster, java, folder / "tool"), clusters, folders
        )
        yield first, second


def test_mqadmin_and_clients_print_the_same_with_both_brokers(
    outputs: tuple[Outputs, Outputs],
) -> None:
    ours, real = outputs
    assert ours.keys() == real.keys()
    wrong = {
        title: (in_words(ours[title]), in_words(text))
        for title, text in real.items()
        if in_words(ours[title]) != in_words(text)
    }
    assert wrong == {}


def test_the_outputs_are_the_expected_ones(outputs: tuple[Outputs, Outputs]) -> None:
    """Guards against both brokers being wrong in the same manner."""
    ours, _ = outputs
    rows = [line.split() for line in ours["listUser"].splitlines()[1:]]
    assert ["shop", SHOP_SECRET, "Normal", "enable"] in rows
    assert ["guest", "guest-secret", "Normal", "disable"] in rows
    assert ours["a send to Orders"] == "0 "
    refused = "User:shop has no permission to access"
    assert (
        f"{refused} Topic:Secret from 127.0.0.1, the decision is deny."
        in (ours["a send to Secret"])
    )
    assert (
        f"{refused} Cluster:{CLUSTER_NAME} from 127.0.0.1, no matched policies."
        in (ours["listUser by one who may not"])
    )
    assert "User:guest is disabled." in ours["listUser by one who is disabled"]
    assert ours["listAcl at last"] == ""
