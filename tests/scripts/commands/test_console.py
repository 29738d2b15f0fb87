"""The command `aerobee console`: its options and their refusals."""

import argparse
import signal
from pathlib import Path

import pytest
from aerobee.scripts.commands.console import clusters_of
from aerobee.scripts.output.command_error import CommandError

from ...interop.programs import wait_until
from ..command import Inside, running


def options(namesrv: str | None, *clusters: str) -> argparse.Namespace:
    return argparse.Namespace(namesrv=namesrv, cluster=list(clusters))


def test_clusters_have_the_names_that_they_are_given() -> None:
    assert clusters_of(options(None)) == {"main": None}
    assert clusters_of(options("a:1")) == {"main": "a:1"}
    assert clusters_of(options("a:1", "east=b:1;c:1")) == {"main": "a:1", "east": "b:1;c:1"}
    assert clusters_of(options(None, "east=b:1")) == {"east": "b:1"}


@pytest.mark.parametrize("text", ["east", "=b:1", "a/b=c:1", "east=", "<b>=c:1"])
def test_a_cluster_without_a_name_or_an_address_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="give NAME=ADDR"):
        clusters_of(options(None, text))


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(CommandError, match="--cluster main is given twice"):
        clusters_of(options("a:1", "main=b:1"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--bind", "0.0.0.0"], "its one-time link is for the loopback only"),
        (["--port", "70000"], "--port is 70000; give 0 to 65535"),
        (["--metrics-port", "70000"], "--metrics-port is 70000; give 0 to 65535"),
        (["--proxy-port", "-1"], "--proxy-port is -1; give 0 to 65535"),
        (["--lake", "file:///etc"], "--lake is 'file:///etc'; give http://HOST:PORT, with NAME="),
        (["--lake", "shop=http://h:1"], "for one of the clusters main"),
        (["--lake", "http://h:1"] * 33, "--lake is there 33 times for main, the limit is 32"),
        (["--lake", "http://h:1", "--lake-token", "short"], "--lake-token has 5 characters"),
        (["--base-path", "x"], "--base-path is 'x'; give a path such as /console"),
        (["--user-header", "X-User"], "any visitor could send that; name the proxy's address"),
        (["--behind-proxy", "x"], "the proxy's address is 'x'; give an IP address"),
        (["--behind-proxy", "10.0.0.1"], "can't be behind a proxy: it has no users"),
        (
            ["--behind-proxy", "10.0.0.1", "--user-header", "X:y"],
            "give the name of a header, such as X-Forwarded-User",
        ),
        (["--users", "none.json"], "none.json has no users; add one: aerobee console user add"),
        (["--cluster-users", "--users", "x"], "--cluster-users is given with --users"),
        (["--cluster-users", "--bind", "0.0.0.0"], "without TLS, as passwords would be readable"),
        (["--tls-server-cert", "none.pem"], "can't speak TLS with 'none.pem'"),
        (["--audit", "/proc/audit"], "without an audit there is no action"),
    ],
)
def test_an_option_that_can_not_be_used_is_one_sentence(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], says: str
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert says in inside.refused("console", *words)


def test_a_file_of_users_that_others_can_read_is_refused(inside: Inside, tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text("{}")
    path.chmod(0o644)
    words = ("console", "--users", str(path), "--audit", str(tmp_path / "audit"))
    assert f"run chmod 600 {path}" in inside.refused(*words)


def test_sigusr1_turns_debug_lines_on_and_off(tmp_path: Path) -> None:
    folders = dict.fromkeys(("XDG_STATE_HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    words = ("console", "-n", "127.0.0.1:1", "--port", "0", "--log-file", str(tmp_path / "log"))
    log = tmp_path / "log"
    with running(tmp_path, *words, env=folders) as daemon:
        for text, count in (("until the next SIGUSR1", 1), ("as at the start", 1), ("until", 2)):
            daemon.child.process.send_signal(signal.SIGUSR1)
            wait_until(lambda: log.read_text().count(text) == count, log.read_text)  # noqa: B023
    assert "DEBUG aerobee.scripts.logs: the log has lines of level debug" in log.read_text()
