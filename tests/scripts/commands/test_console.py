"""The command `aerobee console`: its options and their refusals."""

import argparse

import pytest
from aerobee.scripts import cli
from aerobee.scripts.commands.console import clusters_of
from aerobee.scripts.output.command_error import CommandError


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
        (["--bind", "0.0.0.0"], "no login yet, so it listens on the loopback only"),
        (["--port", "70000"], "--port is 70000; give 0 to 65535"),
        (["--base-path", "x"], "--base-path is 'x'; give a path such as /console"),
    ],
)
def test_an_option_that_can_not_be_used_is_one_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert cli.main(["console", *words]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert says in err
