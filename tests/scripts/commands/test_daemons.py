"""Starting and stopping daemons as a user does, and everything that stops a start."""

import asyncio
import json
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from aerobee.client import by_sql
from aerobee.client.blocking import Consumer
from aerobee.client.errors import ClientError
from aerobee.console.endpoint import PORT_DISTANCE
from aerobee.harness import java_side
from aerobee.harness.child import Child
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.headers.controller import GetMetadataResponse
from aerobee.protocol.security import self_signed
from prometheus_client.parser import text_string_to_metric_families

from ...waiting import PROCESS
from ..command import (
    AEROBEE,
    FREE_PORTS,
    SMALL,
    Daemon,
    Inside,
    aerobee,
    environment,
    output,
    refused,
    running,
    up,
)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PROCESS) as answer:
        found: str = answer.read().decode()
        return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up") / "store"


@pytest.fixture(scope="module")
def daemon(store: Path) -> Iterator[Daemon]:
    """`aerobee up` for all tests that leave it as it is; its home is the folder of the store."""
    words = [*up(store), "--set", "brokerName=a", "--set", "compiledSends=false"]
    with running(store.parent, *words, env={"HOME": str(store.parent)}) as one:
        yield one


# --- up ------------------------------------------------------------------------------------------


def test_the_ready_line_names_addresses_store_page_and_the_next_command(
    daemon: Daemon, store: Path
) -> None:
    assert f"broker {daemon.broker} (clients are told {daemon.broker})" in daemon.ready
    assert f"store {store}" in daemon.ready
    hint = daemon.ready.partition("try: echo hello | ")[2]
    assert hint == f"aerobee pub greetings -n {daemon.namesrv}"
    assert daemon.child.lines == [daemon.ready]
    assert output(*hint.split()[1:], data="hello") == "sent 1 message to greetings\n"


def test_ipv6_addresses_are_printed_with_brackets_and_are_usable(tmp_path: Path) -> None:
    words = [*up(tmp_path / "store"), "--set", "bindAddress=::1"]
    with running(tmp_path, *words) as daemon:
        assert "name server [::1]:" in daemon.ready
        assert "broker [::1]:" in daemon.ready
        hint = daemon.ready.partition("try: echo hello | aerobee ")[2]
        assert output(*hint.split(), data="hello") == "sent 1 message to greetings\n"


def test_messages_survive_ctrl_c_and_a_refused_start_in_the_folder_of_the_store(
    tmp_path: Path,
) -> None:
    words, store = ("up", *FREE_PORTS, *SMALL), tmp_path / "aerobee-data"  # the default
    with running(tmp_path, *words) as daemon:
        assert (store / "lock").exists()
        output("pub", "kept", "-n", daemon.namesrv, data="one\ntwo\n")
        daemon.child.process.send_signal(signal.SIGINT)
        assert daemon.child.wait(PROCESS) == 0
        assert not (store / "abort").exists()
    told = refused(*up(store), "--set", "mappedFileSizeCommitLog=8388608")
    assert "4194304" in told
    assert "8388608" in told
    with running(tmp_path, *words) as daemon:
        sub = ["sub", "kept", "--namesrv", daemon.namesrv, "--from", "earliest", "-n", "2"]
        assert sorted(output(*sub).splitlines()) == ["one", "two"]


def test_up_serves_sql_conditions_unless_a_setting_turns_them_off(tmp_path: Path) -> None:
    condition = {"orders": by_sql("amount > 10")}
    for number, value in enumerate(["", "false"]):
        env = {"AEROBEE_ENABLE_PROPERTY_FILTER": value}
        with running(tmp_path, *up(tmp_path / str(number)), env=env) as daemon:
            output("pub", "orders", "-p", "amount=12", "-n", daemon.namesrv, data="big")
            consumer = partial(Consumer, daemon.namesrv, group="g", topics=condition)
            if value:
                with pytest.raises(ClientError, match="set enablePropertyFilter=true"):
                    consumer()
                continue
            with consumer(start="earliest") as found:
                message = found.receive(PROCESS)
                assert message is not None
                assert message.body == b"big"
                message.ack()


def test_up_gives_its_name_server_the_tls_mode_of_the_broker(tmp_path: Path) -> None:
    words = [*up(tmp_path / "store"), "--set", "tlsServerMode=enforcing"]
    with running(tmp_path, *words) as daemon:
        said = refused("topics", "-n", daemon.namesrv)
        assert f"connection to {daemon.namesrv} closed before it answered anything" in said
        assert output("topics", "-n", daemon.namesrv, "--tls-insecure")


def test_up_gives_its_name_server_the_access_control_of_the_broker(tmp_path: Path) -> None:
    env = {
        "AEROBEE_AUTHENTICATION_ENABLED": "true",
        "AEROBEE_AUTHORIZATION_ENABLED": "true",
        "AEROBEE_INNER_CLIENT_AUTHENTICATION_CREDENTIALS": (
            '{"accessKey":"admin","secretKey":"the-admins-password"}'
        ),
    }
    user = {"AEROBEE_ACCESS_KEY": "admin", "AEROBEE_SECRET_KEY": "the-admins-password"}
    with running(tmp_path, *up(tmp_path / "store"), env=env) as daemon:
        # The broker's registration is signed, so the topic has a route.
        done = aerobee("pub", "greetings", "-n", daemon.namesrv, data="hello\n", env=user)
        assert done.returncode == 0, done.stderr

        async def unsigned() -> int:
            peers = Peers()
            try:
                code = codes.GET_NAMESRV_CONFIG
                return (await peers.request(daemon.namesrv, code, timeout_s=PROCESS)).code
            finally:
                await peers.close()

        assert asyncio.run(unsigned()) == codes.NO_PERMISSION


def test_the_http_endpoint_serves_health_metrics_and_topics(daemon: Daemon) -> None:
    output("pub", "watched", "-n", daemon.namesrv, data="one\ntwo\n")
    group = ["--namesrv", daemon.namesrv, "--from", "earliest", "--group", "watchers"]
    output("sub", "watched", *group, "-n", "2")
    assert get(daemon.page + "healthz") == "ok\n"
    assert get(daemon.page + "readyz") == "ok\n"
    text = get(daemon.page + "metrics")
    found = {
        (sample.name, sample.labels.get("topic"), sample.labels.get("consumer_group")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["rocketmq_messages_in_total", "watched", None].value == 2
    assert found["rocketmq_messages_out_total", "watched", "watchers"].value == 2
    assert found["rocketmq_throughput_in_total", "watched", None].value > 100
    assert found["rocketmq_consumer_lag_messages", "watched", "watchers"].value == 0
    assert found["rocketmq_storage_size_bytes", None, None].value > 0
    labels = found["rocketmq_messages_in_total", "watched", None].labels
    assert (labels["node_type"], labels["is_system"]) == ("broker", "false")
    status = json.loads(get(daemon.page + "status"))
    assert "watched" in {one["topic"] for one in status["topics"]}
    assert "watchers" in {one["group"] for one in status["groups"]}


# --- name server and broker in separate processes ------------------------------------------------


def test_a_broker_with_a_java_properties_file_registers_with_its_name_server(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "n", "namesrv", "--listen-port", "0", "--set", "httpPort=0") as names:
        assert get(names.page + "readyz") == "ok\n"
        file = tmp_path / "broker.conf"
        file.write_text(
            f"brokerName = b-1\nbrokerClusterName=c-1\nnamesrvAddr={names.namesrv}\n"
            f"listenPort=0\nstorePathRootDir={tmp_path / 'store'}\nfileReservedTime=48\n"
            "deleteWhen=04\nbrokerId=0\nbrokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n"
        )
        broker = ["broker", "-c", str(file), *SMALL, "--set", "httpPort=-1"]
        with running(tmp_path / "b", *broker) as daemon:
            assert daemon.ready.startswith("broker b-1 is ready")
            assert "HTTP" not in daemon.ready
            assert daemon.broker in output("cluster", "-n", names.namesrv)
            (row,) = json.loads(get(names.page + "status"))["brokers"]
            assert (row["broker"], row["cluster"], row["broker_id"]) == ("b-1", "c-1", 0)
        assert "b-1" not in output("cluster", "-n", names.namesrv)


def test_settings_come_from_yaml_the_environment_and_set_in_this_order(
    tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("brokerName: from-file\nbrokerClusterName: from-file\nregionId: from-file\n")
    for name in ("AEROBEE_BROKER_CLUSTER_NAME", "AEROBEE_REGION_ID"):
        monkeypatch.setenv(name, "from-env")
    words = ["broker", "-c", str(file), "--set", "regionId=from-set", "--print-config"]
    done = inside.done(*words)
    assert done.returncode == 0
    shown = dict(re.findall(r"^used \* +(\w+)=(.*)$", done.stdout, re.MULTILINE))
    names = ["brokerName", "brokerClusterName", "regionId"]
    assert shown == dict(zip(names, ["from-file", "from-env", "from-set"], strict=True))
    changed = inside.done(*words, "changed").stdout.splitlines()
    assert [line.split()[0] for line in changed] == ["KEY", *sorted(names)]
    assert re.search(rf"brokerName +from-file .* {re.escape(str(file))} line 1 +used$", changed[2])
    assert re.search("environment variable AEROBEE_BROKER_CLUSTER_NAME +used$", changed[1])
    assert re.search(r"regionId +from-set +DefaultRegion +--set +used$", changed[3])
    every = [json.loads(line) for line in inside.done(*words, "json").stdout.splitlines()]
    [region] = [one for one in every if one["key"] == "regionId"]
    assert (region["value"], region["default"]) == ("from-set", "DefaultRegion")
    assert (region["origin"], region["state"]) == ("--set", "used")
    assert {one["origin"] for one in every if one["key"] not in names} == {"default"}


def test_a_name_server_ignores_environment_variables_of_a_broker(tmp_path: Path) -> None:
    env = {
        "AEROBEE_STORE_PATH_ROOT_DIR": "/nowhere",
        "AEROBEE_HTTP_PORT": "-1",
        "AEROBEE_LISTEN_PORT": "0",
        "AEROBEE_LISTENPROT": "1",
    }
    with running(tmp_path, "namesrv", env=env) as names:
        warnings = [line for line in names.child.tail().split("\\n") if "WARNING" in line]
        assert len(warnings) == 1
        assert "unknown key listenprot" in warnings[0]


def test_print_config_marks_each_key(inside: Inside, caplog: pytest.LogCaptureFixture) -> None:
    words = ["--set", "listenPrt=1", "--set", "sendMessageThreadPoolNums=4", "--print-config"]
    out = inside.done("broker", *words).stdout
    assert re.search(r"^used +listenPort=10911$", out, re.MULTILINE)
    accepted = r"^accepted without effect \* +sendMessageThreadPoolNums=4$"
    assert re.search(accepted, out, re.MULTILINE)
    assert re.search(r"^unknown \* +listenPrt=1$", out, re.MULTILINE)
    states = [line.split()[0] for line in out.splitlines()]
    assert states == sorted(states, key=["used", "accepted", "unknown"].index)
    assert "did you mean listenPort?" in caplog.text


def test_print_config_marks_a_value_from_a_dedicated_option(inside: Inside) -> None:
    out = inside.output("broker", "-n", "names:9876", "--print-config", "changed")
    assert re.search(r"^namesrvAddr +names:9876 +-n +used$", out, re.MULTILINE)


# --- the key-value config of a name server -------------------------------------------------------


def put_kv(namesrv: str) -> None:
    fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:4"}

    async def put() -> None:
        peers = Peers()
        answer = await peers.request(namesrv, codes.PUT_KV_CONFIG, fields, b"", PROCESS)
        assert answer.code == codes.SUCCESS
        await peers.close()

    asyncio.run(put())


def test_a_name_server_keeps_its_key_value_config_where_rocketmqs_does(tmp_path: Path) -> None:
    words = ["namesrv", "--listen-port", "0", "--set", "httpPort=-1"]
    file = tmp_path / "namesrv" / "kvConfig.json"
    with Child([*AEROBEE, *words], tmp_path / "stderr", env={"HOME": str(tmp_path)}) as child:
        ready = child.wait_line(lambda line: "ready" in line, PROCESS)
        put_kv(Daemon(child, ready).namesrv)
    assert '"T":"broker-a:4"' in file.read_text()
    for damaged in (file, file.with_name("kvConfig.json.bak")):
        damaged.write_text("no JSON")
    said = refused(*words, "--log-level", "error", env={"HOME": str(tmp_path)})
    assert f"{file} can't be read" in said


def test_a_name_server_runs_a_controller_that_reads_the_same_settings(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(
        "listenPort=0\nenableControllerInNamesrv=true\ncontrollerDLegerSelfId=n1\n"
        f"controllerDLegerPeers=n1-127.0.0.1:0\ncontrollerStorePath={tmp_path / 'state'}\n"
    )
    words = ["namesrv", "-c", str(file), "--set", "httpPort=-1"]
    stderr = tmp_path / "stderr"
    with Child([*AEROBEE, *words], stderr, env={"HOME": str(tmp_path)}) as child:
        ready = child.wait_line(lambda line: "ready" in line, PROCESS)
        address = re.findall(r"controller (127\.0\.0\.1:\d+), state", ready)[0]

        async def ask() -> GetMetadataResponse:
            peers = Peers()
            try:
                code = codes.CONTROLLER_GET_METADATA_INFO
                answer = await peers.request(address, code, timeout_s=PROCESS)
                return answer.header(GetMetadataResponse)
            finally:
                await peers.close()

        found = asyncio.run(ask())
        assert (found.controller_leader_id, found.controller_leader_address) == ("n1", address)
    assert (tmp_path / "state").is_dir()
    assert stderr.read_text().count("has no effect") == 0


def test_up_keeps_the_key_value_config_in_its_store_folder(daemon: Daemon, store: Path) -> None:
    put_kv(daemon.namesrv)
    assert (store / "namesrv" / "kvConfig.json").exists()
    assert not (store.parent / "namesrv").exists()


# --- what stops a start --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (["namesrv"], ["tlsServerCertPath", "tlsServerKeyPath"]),
        (["broker"], ["tlsServerCertPath", "tlsServerKeyPath"]),
        (["controller", "--store", "controller"], ["tlsServerCertPath", "tlsServerKeyPath"]),
        (["proxy", "-n", "127.0.0.1:1"], ["tlsCertPath", "tlsKeyPath"]),
        (["console", "--port", "0"], ["--tls-server-cert", "--tls-server-key"]),
    ],
    ids=lambda value: value[0],
)
def test_a_private_key_that_others_can_read_stops_the_start(
    tmp_path: Path, words: list[str], settings: list[str]
) -> None:
    key = tmp_path / "own.pem"
    key.write_bytes(self_signed.make(time.time()))
    key.chmod(0o644)
    for name in settings:
        words = [*words, *([name, str(key)] if name[0] == "-" else ["--set", f"{name}={key}"])]
    if words[0] != "console":
        words += ["--listen-port", "0"] if words[0] == "proxy" else ["--set", "listenPort=0"]
        words += ["--set", "httpPort=-1"]
    if words[0] == "broker":
        words += ["--set", f"storePathRootDir={tmp_path / 'store'}"]
    folders = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    done = aerobee(*words, env=folders, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert f"private key ({', '.join(settings)}): {key} has mode 0644" in last
    assert f"0640 is the most that is allowed; run chmod 600 {key}" in last


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("listenPort=many", "listenPort is 'many' (--set), but must be a whole number from 0"),
        ("listenPort=70000", "listenPort is '70000' (--set), but must be a whole number from 0"),
        ("flushDiskType=SOMETIMES", "but must be one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("autoCreateTopicEnable=maybe", "but must be true or false"),
        ("listenPort", "--set 'listenPort' has no key and value; write --set key=value"),
    ],
)
def test_a_wrong_value_stops_the_start(setting: str, reason: str, inside: Inside) -> None:
    for command in ("broker", "up"):
        assert reason in inside.refused(command, "--set", setting)


def test_a_wrong_value_of_a_name_server_stops_its_start() -> None:
    told = refused("namesrv", "--set", "scanNotActiveBrokerInterval=soon")
    assert "scanNotActiveBrokerInterval is 'soon'" in told


@pytest.mark.parametrize("option", ["--namesrv-port", "--listen-port"])
@pytest.mark.parametrize("text", ["99999", "-1", "1x"])
def test_an_invalid_port_is_reported_with_the_option_as_written(
    option: str, text: str, inside: Inside
) -> None:
    done = inside.done("up", f"{option}={text}")
    assert done.returncode == 2
    assert f"argument {option}: {text!r} is not a port, a number from 0 to 65535" in done.stderr


def test_a_missing_config_file_is_named(tmp_path: Path, inside: Inside) -> None:
    for command in ("broker", "namesrv"):
        told = inside.refused(command, "-c", str(tmp_path / "none.conf"))
        assert f"{tmp_path / 'none.conf'} can't be read: No such file" in told


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        what = f"can't listen on 127.0.0.1:{port}: another program listens there"
        store = ["--store", str(tmp_path), *SMALL]
        assert what in refused("namesrv", "--listen-port", port, "--log-level", "warning")
        for option in ("--namesrv-port", "--listen-port"):
            assert what in refused("up", *FREE_PORTS, option, port, *store)
        said = refused("up", *FREE_PORTS, "--set", f"httpPort={port}", *store)
        assert f"can't serve HTTP on 127.0.0.1:{port}" in said


def test_a_second_master_of_a_name_ends_with_one_sentence(daemon: Daemon, tmp_path: Path) -> None:
    words = ["--set", "brokerName=a", "--set", "listenPort=0", "--set", "httpPort=-1", *SMALL]
    words += ["-n", daemon.namesrv, "--log-level", "error"]
    told = refused("broker", *words, "--set", f"storePathRootDir={tmp_path / 'two'}")
    assert f"a living master at {daemon.broker}, so this broker at 127.0.0.1:" in told


def test_a_second_broker_finds_another_port_for_http(tmp_path: Path) -> None:
    (listen,) = java_side.free_ports(1, near=(-2, 1, PORT_DISTANCE))
    port = listen + PORT_DISTANCE
    with socket.create_server(("127.0.0.1", port)):
        words = ["broker", "--set", f"storePathRootDir={tmp_path / 'store'}", *SMALL]
        words += ["--set", f"listenPort={listen}"]
        with running(tmp_path, *words) as daemon:
            assert get(daemon.page + "readyz") == "ok\n"
            assert not daemon.page.endswith(f":{port}/")
        assert f"can't serve HTTP on 127.0.0.1:{port}" in refused(
            *words, "--set", f"httpPort={port}", "--log-level", "error"
        )


@pytest.mark.parametrize("is_upwards", [True, False])
def test_brokers_whose_listen_ports_are_ten_apart_start_in_any_order(
    tmp_path: Path, is_upwards: bool
) -> None:
    (first,) = java_side.free_ports(1, near=(-2, 1, PORT_DISTANCE, 8, 10, 11, 10 + PORT_DISTANCE))
    ports = (first, first + 10) if is_upwards else (first + 10, first)

    def words(port: int) -> list[str]:
        store = f"storePathRootDir={tmp_path / str(port)}"
        more = ("--set", store, "--set", f"listenPort={port}")
        return ["broker", *SMALL, "--set", "compiledSends=false", *more]

    folders = tmp_path / "1", tmp_path / "2"
    with running(folders[0], *words(ports[0])), running(folders[1], *words(ports[1])) as daemon:
        assert get(daemon.page + "readyz") == "ok\n"


def test_a_second_broker_on_one_store_is_refused_and_the_first_goes_on(
    daemon: Daemon, store: Path
) -> None:
    assert str(store) in refused(*up(store))
    output("pub", "still", "-n", daemon.namesrv, data="here")


def test_a_store_folder_that_can_not_be_created_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in refused(*up(file / "store"))
    assert "/proc/aerobee" in refused(*up(Path("/proc/aerobee")))


def test_a_full_disk_stops_the_start(tmp_path: Path) -> None:
    limit = ["bash", "-c", 'ulimit -f 1024; exec "$@"', "bash"]
    done = subprocess.run(
        [*limit, *AEROBEE, *up(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=PROCESS,
        env=environment(),
        check=False,
    )
    assert done.returncode == 1
    assert re.search(r"no room to reserve \d+ bytes for .*commitlog", done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_the_sender_is_told_of_a_disk_without_room_for_messages(daemon: Daemon) -> None:
    # A limit on the size of files takes the same code path as a full disk, and needs no root.
    limits = (20_000, resource.RLIM_INFINITY)  # enough for all but a queue file
    resource.prlimit(daemon.child.pid, resource.RLIMIT_FSIZE, limits)
    told = refused("pub", "roomy", "-n", daemon.namesrv, data="hello")
    resource.prlimit(daemon.child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert "no room to" in told
    assert "sent 1" in output("pub", "roomy", "-n", daemon.namesrv, data="hello")


def test_an_unknown_command_is_refused_with_the_known_ones(inside: Inside) -> None:
    done = inside.done("begin")
    assert done.returncode == 2
    assert "there are up, namesrv, broker, controller, proxy, init, pub" in done.stderr
