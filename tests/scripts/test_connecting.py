"""How all commands reach a cluster: name servers by one option, TLS by options and variables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aerobee.client.base.security import Security
from aerobee.client.blocking import Admin
from aerobee.testing.cluster import LocalCluster

from .command import Inside

# A command line of each command that connects, but for where to.
LINES = {
    "pub": ("pub", "greetings"),
    "sub": ("sub", "greetings", "--from", "earliest", "--count", "0"),
    "topics": ("topics",),
    "groups": ("groups",),
    "cluster": ("cluster",),
    "lag": ("lag",),
    "message": ("message", "0" * 32),
    "dlq": ("dlq",),
    "users": ("users",),
    "doctor": ("doctor",),
}
NOBODY = "127.0.0.1:1"
INPUT = "hello\n"  # for `pub`


@pytest.fixture(scope="module")
def enforcing() -> Iterator[LocalCluster]:
    """A broker that speaks TLS alone, with a certificate of its own making."""
    with LocalCluster(tls_server_mode="enforcing") as cluster:
        with Admin(cluster.name_server, security=Security(tls_insecure=True)) as admin:
            admin.create_topic("greetings", 1)
        yield cluster


@pytest.mark.parametrize("option", ["-n", "--namesrv"])
@pytest.mark.parametrize("command", [name for name in LINES if name != "sub"])
def test_every_command_takes_name_servers_by_both_spellings(
    inside: Inside, command: str, option: str
) -> None:
    assert f"can't connect to {NOBODY}: " in inside.refused(
        *LINES[command], option, NOBODY, data=INPUT
    )


@pytest.mark.parametrize("option", ["-n", "--namesrv"])
def test_sub_takes_them_too_and_a_plain_number_is_a_count(
    cluster: LocalCluster, inside: Inside, option: str
) -> None:
    inside.output("pub", "counted", "-n", cluster.name_server, data="hello\n")
    for count in ("--count", "-n"):
        words = ("counted", "--from", "earliest", count, "1", option, cluster.name_server)
        assert inside.read(*words) == "hello\n"


@pytest.mark.parametrize("command", [name for name in LINES if name not in ("sub", "message")])
def test_every_command_speaks_tls_by_option_and_by_variable(
    enforcing: LocalCluster, inside: Inside, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    words = (*LINES[command], "-n", enforcing.name_server)
    if command == "users":  # the name server is not asked, and the broker has no access control
        assert "TLS" not in inside.refused(*words, "--tls-insecure")
        return
    done = inside.done(*words, "--tls-insecure", data=INPUT)
    assert done.stderr == ""
    monkeypatch.setenv("AEROBEE_TLS_INSECURE", "true")
    again = inside.done(*words, data=INPUT)
    assert (again.returncode, again.stderr) == (done.returncode, "")


@pytest.mark.parametrize("command", ["pub", "cluster", "groups"])
def test_without_tls_the_sentence_asks_whether_it_is_wanted(
    enforcing: LocalCluster, inside: Inside, command: str
) -> None:
    error = inside.refused(*LINES[command], "-n", enforcing.name_server, data=INPUT)
    said = f"connection to {enforcing.brokers[0].address} closed before it answered anything; does"
    assert f"{said} it want TLS? A command takes --tls or AEROBEE_TLS=true" in error


def test_a_certificate_that_nobody_knows_is_refused_with_what_to_do(
    enforcing: LocalCluster, inside: Inside
) -> None:
    where = ("-n", enforcing.name_server)
    error = inside.refused("topics", *where, "--tls")
    assert "certificate verify failed: self-signed certificate; name the file of" in error
    error = inside.refused("topics", *where, "--tls-ca", "/none.pem")
    assert error.startswith("aerobee topics: tls_ca is '/none.pem', which can't be used: ")


def test_a_broker_that_is_taken_for_a_name_server_is_told(
    cluster: LocalCluster, inside: Inside
) -> None:
    address = cluster.brokers[0].address
    for command in ("pub", "topics", "doctor"):
        error = inside.refused(*LINES[command], "-n", address, data=INPUT)
        assert f"{address} is a broker; give the address of the name server, which is" in error


def test_a_cluster_is_shown_with_both_versions(cluster: LocalCluster, inside: Inside) -> None:
    from importlib.metadata import version

    lines = inside.output("cluster", "-n", cluster.name_server).splitlines()
    columns, row = (line.split() for line in lines)
    assert dict(zip(columns, row, strict=True))["AEROBEE"] == version("aerobee")
    assert dict(zip(columns, row, strict=True))["VERSION"] == "V5_3_3"
