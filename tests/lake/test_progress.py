"""What snapshots say of a table's progress, and what of them is not trusted."""

from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.cluster.route import MessageQueue
from aerobee.lake.errors import LakeError
from aerobee.lake.progress import ACCEPTED_KEY, Progress, mark_of, progress_of, queue_key
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

HAVE = Progress({"b:0": 4, "b:1": 0}, {"b:0": "0000abcd"}, {"b:1": 2})
NUMBERS = st.dictionaries(st.text(), st.integers(0, 1 << 62))


def table(*snapshots: tuple[Operation, dict[str, str]], **properties: str) -> TableMetadata:
    """A table whose snapshots 1, 2, 3 ... follow each other."""
    return TableMetadataV2.model_construct(
        properties=properties,
        current_snapshot_id=len(snapshots) or None,
        snapshots=[
            Snapshot.model_validate(
                {
                    "snapshot-id": number,
                    "parent-snapshot-id": number - 1 or None,
                    "sequence-number": number,
                    "timestamp-ms": number,
                    "manifest-list": "",
                    "summary": Summary(operation, **said),
                }
            )
            for number, (operation, said) in enumerate(snapshots, 1)
        ],
    )


@given(NUMBERS, st.dictionaries(st.text(), st.text()), NUMBERS)
def test_progress_comes_back_from_a_snapshot(
    offsets: dict[str, int], marks: dict[str, str], gone: dict[str, int]
) -> None:
    before = Progress(offsets, marks, gone)
    assert progress_of(table((Operation.APPEND, before.summary())), "t") == before


def test_a_new_table_has_none() -> None:
    assert progress_of(table(), "t") == Progress()


def test_a_copy_changes_alone() -> None:
    copy = HAVE.copy()
    copy.offsets["b:0"] = copy.gone["b:1"] = 9
    copy.marks.clear()
    assert (HAVE.offsets["b:0"], HAVE.gone["b:1"], len(HAVE.marks)) == (4, 2, 1)


def test_names_of_queues_and_marks_stay_as_they_are() -> None:
    """Tables have them: another form would make each table begin again, or stop it."""
    assert queue_key(MessageQueue("orders", "broker-a", 3)) == "broker-a:3"
    assert mark_of("7F000001", 1_700_000_000_456_000) == "a451fb1f"
    assert mark_of(None, 0) != mark_of("None ", 0)


@pytest.mark.parametrize("operation", [Operation.REPLACE, Operation.DELETE])
def test_compactions_and_deletions_of_others_are_passed(operation: Operation) -> None:
    found = table((Operation.APPEND, HAVE.summary()), (operation, {}), (operation, {}))
    assert progress_of(found, "t") == HAVE


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.OVERWRITE])
def test_rows_of_others_are_refused_until_they_are_accepted(operation: Operation) -> None:
    snapshots: list[tuple[Operation, dict[str, str]]] = [
        (Operation.APPEND, HAVE.summary()),
        *((operation, {}), (operation, {}), (Operation.DELETE, {})),
    ]
    with pytest.raises(LakeError, match=f"snapshot 3 of table t .*operation {operation.value}"):
        progress_of(table(*snapshots), "t")
    with pytest.raises(LakeError, match="snapshot 3 of table t is no commit of aerobee"):
        progress_of(table(*snapshots, **{ACCEPTED_KEY: "2"}), "t")
    for accepted in ("3", "4"):
        assert progress_of(table(*snapshots, **{ACCEPTED_KEY: accepted}), "t") == HAVE


def test_a_table_whose_snapshots_of_aerobee_are_expired_is_refused() -> None:
    found = table((Operation.APPEND, HAVE.summary()), (Operation.DELETE, {}))
    found.snapshots.pop(0)
    with pytest.raises(LakeError, match=r"no snapshot of table t up to 2 has .*aerobee\.offsets"):
        progress_of(found, "t")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"aerobee.version": "2"},
            "has aerobee.version '2', this aerobee reads 1; use the version",
        ),
        ({"aerobee.version": None}, "has aerobee.version None"),
        ({"aerobee.offsets": "{"}, "offsets that can't be read .*Expecting property name"),
        ({"aerobee.offsets": "[]"}, "offsets that can't be read"),
        ({"aerobee.offsets": '{"b:0":-1}'}, "b:0 is -1"),
        ({"aerobee.offsets": '{"b:0":1.5}'}, "b:0 is 1.5"),
        ({"aerobee.offsets": '{"b:0":true}'}, "b:0 is True"),
        ({"aerobee.marks": "[1]"}, "offsets that can't be read"),
        ({"aerobee.gone": '{"b:0":"x"}'}, "b:0 is 'x'"),
    ],
)
def test_what_can_not_be_read_is_refused(change: dict[str, Any], says: str) -> None:
    said = {key: text for key, text in (HAVE.summary() | change).items() if text is not None}
    with pytest.raises(LakeError, match=says):
        progress_of(table((Operation.APPEND, said)), "t")
