"""The names, ports and stores of a group, and what a group can't have."""

import re
import socket
from pathlib import Path

import pytest
from aerobee.broker.settings.config import load_broker
from aerobee.scripts.output.command_error import CommandError
from aerobee.scripts.processes import plan as plans
from aerobee.scripts.processes.plan import MemberPlan, check_ports, cores, count_of, plan


def planned(folder: Path, count: int, *settings: str) -> list[MemberPlan]:
    given = ["brokerName=a", f"storePathRootDir={folder}", *settings]
    config, _ = load_broker(options=given)
    return plan(config, count, file=None, settings=given, environ={})


def test_each_member_has_a_name_ports_and_a_store_of_its_own(tmp_path: Path) -> None:
    found = planned(tmp_path, 3, "listenPort=20911", "regionId=here")
    assert [each.name for each in found] == ["a-0", "a-1", "a-2"]
    assert [each.ports for each in found] == [
        [20909, 20911, 20912, 20916],
        [20919, 20921, 20922, 20926],
        [20929, 20931, 20932, 20936],
    ]
    assert [each.config.store_dir for each in found] == [
        tmp_path / "a-0",
        tmp_path / "a-1",
        tmp_path / "a-2",
    ]
    assert {each.config.region_id for each in found} == {"here"}


def test_port_0_stays_any_free_one(tmp_path: Path) -> None:
    assert [each.ports for each in planned(tmp_path, 2, "listenPort=0")] == [[], []]


def test_a_log_elsewhere_has_a_folder_for_each(tmp_path: Path) -> None:
    found = planned(tmp_path, 2, f"storePathCommitLog={tmp_path / 'log'}")
    assert [each.config.commit_log_dir.name for each in found] == ["a-0", "a-1"]


def test_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "cores", lambda: 3)
    assert (count_of("auto"), count_of("5")) == (3, 5)
    for text in ("0", "65", "-1", "two", ""):
        with pytest.raises(CommandError, match=re.escape(f"--processes is {text!r}")):
            count_of(text)
    monkeypatch.undo()
    assert cores() >= 1


def test_every_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        members = planned(tmp_path, 2, f"listenPort={taken - 10}")
        with pytest.raises(CommandError, match=rf"{taken} of a-1 is taken.*; stop what listens"):
            check_ports(members, None)


def test_two_uses_of_a_port_are_refused(tmp_path: Path) -> None:
    members = planned(tmp_path, 2, "listenPort=20911", "haListenPort=20901")
    with pytest.raises(CommandError, match=r"20911 of a-1 is also of a-0"):
        check_ports(members, None)
    members = planned(tmp_path, 1, "listenPort=20911")
    with pytest.raises(CommandError, match=r"20912 of the group's HTTP port is also of a-0"):
        check_ports(members, ("127.0.0.1", 20912))


def test_ports_over_the_limit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"the ports of a-2 would be 65531, 65532 and 65536"):
        planned(tmp_path, 4, "listenPort=65511")


def test_the_store_of_a_broker_by_itself_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(CommandError, match=re.escape(f"move what is there to {tmp_path / 'a-0'}")):
        planned(tmp_path, 2)


def test_a_controller_elects_no_members(tmp_path: Path) -> None:
    mode = ("enableControllerMode=true", "controllerAddr=127.0.0.1:1")
    with pytest.raises(CommandError, match="enableControllerMode"):
        planned(tmp_path, 2, *mode)


def test_members_of_a_larger_group_before_leave(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "a-2", "a-x", "b-3", "a-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "a-2" / plans.DRAINED).touch()
    found = planned(tmp_path, 1)
    assert [(each.name, each.is_leaving) for each in found] == [
        ("a-0", False),
        ("a-1", True),
        ("a-3", True),
    ]
    assert [each.config.broker_permission for each in found] == [6, 4, 4]
    # One that comes back is no longer drained.
    assert [each.is_leaving for each in planned(tmp_path, 4)] == [False] * 4
    assert [each.is_leaving for each in planned(tmp_path, 2)] == [False, False, True, True]
