"""The Parquet files of a table, for who reads them without Iceberg."""

from pyiceberg.table import DataScan, FileScanTask

from .errors import LakeError


def tasks_of(scan: DataScan, name: str) -> list[FileScanTask]:
    """The files of a scan of table `name`. LakeError when rows of them are deleted by delete files,
    which a reader of Parquet does not see."""
    found = list(scan.plan_files())
    for task in found:
        if task.delete_files:
            raise LakeError(
                f"table {name} has delete files (first beside {task.file.file_path}): its Parquet "
                "files alone would show deleted rows; rewrite the table's data files with the "
                "engine that deleted them"
            )
    return found
