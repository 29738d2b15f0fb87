"""Words that a newcomer may try: help by name, slips of the pen, options of another command."""

from pathlib import Path

import pytest
from aerobee.scripts.cli import COMMANDS

from .command import Inside


def said(inside: Inside, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, the last line of standard error."""
    done = inside.done(*words)
    return done.returncode, done.stdout, (done.stderr.splitlines() or [""])[-1]


def test_help_is_a_word_too(inside: Inside) -> None:
    whole = said(inside, "--help")
    assert whole[0] == 0
    assert all(name in whole[1] for name in COMMANDS)
    assert said(inside) == said(inside, "help") == whole
    for words in (("help", "pub"), ("pub", "--help")):
        code, out, _ = said(inside, *words)
        assert (code, out.startswith("usage: aerobee pub ")) == (0, True)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("tpoics", "did you mean topics?"),
        ("publish", "did you mean pub?"),
        ("xyz", "there are up, namesrv, broker, controller, proxy, init, pub, sub, "),
    ],
)
def test_an_unknown_command_is_told_with_the_one_that_was_probably_meant(
    inside: Inside, word: str, hint: str
) -> None:
    code, out, error = said(inside, word)
    assert (code, out) == (2, "")
    assert error.startswith(f"aerobee: error: there is no command {word!r}; {hint}")


def test_a_broker_is_told_its_name_servers_in_both_ways(inside: Inside) -> None:
    for option in ("-n", "--namesrv"):
        code, out, _ = said(inside, "broker", option, "names:9876", "--print-config")
        assert (code, "namesrvAddr=names:9876\n" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sub", "a b"], "aerobee sub: The specified topic[a b] contains illegal characters"),
        (
            ["sub", "T", "--from", "9" * 20],
            "aerobee sub: --from 99999999999999999999 is no place to",
        ),
        (["topics", "delete", ""], "aerobee topics: which topic? write: aerobee topics delete "),
        (["groups", "delete"], "aerobee groups: which group? write: aerobee groups delete NAME"),
    ],
)
def test_what_can_not_be_is_refused_before_anybody_is_asked(
    inside: Inside, words: list[str], says: str
) -> None:
    code, out, error = said(inside, *words)
    assert (code, out) == (1, "")
    assert error.startswith(says)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["check", "queue"], 1, "what to dump is for dump; check takes the whole store"),
        (["check", "--topic", "T"], 1, "--topic is for dump; check takes the whole store"),
        (["rebuild", "-n", "3"], 1, "-n is for dump; rebuild takes the whole store"),
        (["dump", "-n", "-1"], 2, "'-1' is no number from 0 on"),
        (["dump", "--from", "x"], 2, "'x' is no number from 0 on"),
    ],
)
def test_what_is_for_dump_alone_is_told(
    inside: Inside, tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    found, out, error = said(inside, "store", words[0], str(tmp_path), *words[1:])
    assert (found, out) == (code, "")
    assert error.endswith(says)
