"""`aerobee init --systemd`: units that systemd takes, and settings that the daemons take."""

from __future__ import annotations

import configparser
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.settings.config import load_broker
from aerobee.conf.load import Keys, load
from aerobee.proxy.settings.config import KEYS as PROXY_KEYS
from aerobee.scripts import cli
from aerobee.scripts.commands.controller import KEYS as CONTROLLER_KEYS
from aerobee.scripts.commands.daemons import NAMESRV_KEYS
from aerobee.scripts.init import systemd
from aerobee.scripts.output.command_error import CommandError

from ...waiting import PROCESS
from ..command import output, refused

PROGRAM = "/opt/aerobee/bin/aerobee"
# What a daemon that is taken over may not do.
HARDENED = {
    "nonewprivileges": "true",
    "capabilityboundingset": "",
    "protectsystem": "strict",
    "protecthome": "true",
    "privatedevices": "true",
    "restrictnamespaces": "true",
    "systemcallfilter": "@system-service",
}


def units(root: Path) -> dict[str, configparser.ConfigParser]:
    found = {}
    for path in sorted((root / systemd.UNITS).iterdir()):
        found[path.stem] = configparser.ConfigParser(interpolation=None, strict=True)
        found[path.stem].read_string(path.read_text())
    return found


def test_each_daemon_has_a_hardened_unit_that_starts_a_command_that_there_is(
    tmp_path: Path,
) -> None:
    systemd.write(tmp_path, PROGRAM)
    found = units(tmp_path)
    assert {name.removeprefix("aerobee-") for name in found} == set(systemd.DAEMONS)
    for name, unit in found.items():
        service = unit["Service"]
        program, command, *words = service["ExecStart"].split()
        assert (program, f"aerobee-{command}") == (PROGRAM, name)
        assert command in cli.COMMANDS
        if words[0] == "-c":
            assert (tmp_path / words[1].removeprefix("/")).is_file()
        else:
            assert (tmp_path / service["EnvironmentFile"].removeprefix("/")).is_file()
        assert service["User"] == "aerobee"
        assert HARDENED.items() <= dict(service).items()
        others = unit["Unit"]["After"].split()[1:]
        assert {one.removesuffix(".service") for one in others} <= found.keys()


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed; the test above reads the units")
    systemd.write(tmp_path, "/bin/true")  # the command must be one that there is
    paths = sorted((tmp_path / systemd.UNITS).iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=PROCESS,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "aerobee" in line] == []


@pytest.mark.parametrize(
    ("name", "keys"),
    [("namesrv", NAMESRV_KEYS), ("controller", CONTROLLER_KEYS), ("proxy", PROXY_KEYS)],
)
def test_daemons_take_their_settings_and_write_below_var_lib(
    tmp_path: Path, name: str, keys: Keys[Any]
) -> None:
    systemd.write(tmp_path, PROGRAM)
    config, warnings = load(keys, file=tmp_path / systemd.SETTINGS / f"{name}.yaml")
    assert warnings == []
    for key, value in systemd.DAEMONS[name].settings.items():
        assert getattr(config, keys.fields[key].name) == value


def test_a_broker_takes_its_settings(tmp_path: Path) -> None:
    systemd.write(tmp_path, PROGRAM)
    config, warnings = load_broker(file=tmp_path / systemd.SETTINGS / "broker.yaml")
    assert warnings == []
    assert config.store_dir == Path("/var/lib/aerobee/store")
    assert config.namesrv_addr == "127.0.0.1:9876"


def test_only_root_reads_the_settings_before_the_user_is_there(tmp_path: Path) -> None:
    for path in systemd.write(tmp_path, PROGRAM):
        is_setting = path.parent == tmp_path / systemd.SETTINGS
        assert stat.S_IMODE(path.stat().st_mode) == (0o600 if is_setting else 0o644)
    rules = (tmp_path / systemd.FILES).read_text().splitlines()
    assert "z /etc/aerobee/* 0640 root aerobee -" in rules


def test_a_file_that_is_there_stays_and_nothing_is_written(tmp_path: Path) -> None:
    mine = tmp_path / systemd.SETTINGS / "broker.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("brokerName: mine\n")
    with pytest.raises(CommandError, match=r"nothing was written, since .*broker\.yaml exists"):
        systemd.write(tmp_path, PROGRAM)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "brokerName: mine\n"


@pytest.mark.parametrize("program", ["aerobee", "/opt/my folder/aerobee", "/opt/%i/aerobee"])
def test_a_program_that_a_unit_cant_have_is_refused(tmp_path: Path, program: str) -> None:
    with pytest.raises(CommandError, match="but must be an absolute path"):
        systemd.write(tmp_path, program)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/home/me/", "/root/", "/tmp/", "/var/tmp/", "/run/user/1/"])
def test_a_program_that_units_dont_see_is_refused_unless_it_is_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"{folder}venv/bin/aerobee"
    monkeypatch.setattr(systemd, "_this_program", lambda: program)
    words = ["init", "--systemd", str(tmp_path)]
    assert cli.main(words) == 1
    told = capsys.readouterr().err
    assert f"the units would start {program}, but see no home folder" in told
    assert "--program" in told
    assert list(tmp_path.iterdir()) == []
    assert cli.main([*words, "--program", program]) == 0
    assert f"note: the units would start {program}" in capsys.readouterr().out


def test_the_command_tells_what_it_wrote_and_what_comes_next(tmp_path: Path) -> None:
    words = ("init", "--systemd", str(tmp_path))
    printed = output(*words, "--program", PROGRAM).splitlines()
    assert f"written {tmp_path}/etc/systemd/system/aerobee-broker.service" in printed
    assert printed[-1].startswith("next: systemd-sysusers")
    assert "nothing was written" in refused(*words, "--program", PROGRAM)
