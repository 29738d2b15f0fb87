"""Errors that a user can fix are one sentence, without the traceback of Spark's Python process.

PySpark puts the whole traceback into its exception unless SPARK_HIDE_TRACEBACK is set; its setting
spark.sql.execution.pyspark.udf.hideTraceback.enabled sets it for all errors. This module sets it
when an expected error is raised; the process ends after it has reported that error.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..client.errors import AerobeeError
from ..lake.errors import LakeError
from ..lake.rows.ranges import DataLossError
from ..store.base.errors import StoreError

HIDE = "SPARK_HIDE_TRACEBACK"
OF_WORKERS = "PYTHON_WORKER_FACTORY_"  # prefix of the variables of Spark's Python processes


@contextmanager
def readable_errors() -> Iterator[None]:
    """Context manager and decorator: hides the traceback of expected errors.

    It acts only in a Python process of Spark's. A ValueError itself names a wrong option or column;
    its subclasses are bugs and keep their traceback.
    """
    try:
        yield
    except Exception as wrong:
        is_expected = isinstance(wrong, AerobeeError | StoreError | LakeError | DataLossError)
        if is_expected or type(wrong) is ValueError:
            _hide()
        raise


def _hide() -> None:
    if any(name.startswith(OF_WORKERS) for name in os.environ):
        os.environ[HIDE] = "1"
