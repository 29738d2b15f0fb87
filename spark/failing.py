"""What a user can mend is said in one sentence, without the traceback of Spark's Python process.

PySpark puts the whole traceback into its exception unless SPARK_HIDE_TRACEBACK is set; its setting
spark.sql.execution.pyspark.udf.hideTraceback.enabled does just that, for all errors. Here it is set
at the moment of an error that is no bug; the process that hands over an error ends with it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..client.errors import AerobeeError
from ..store.base.errors import StoreError

HIDE = "SPARK_HIDE_TRACEBACK"
OF_WORKERS = "PYTHON_WORKER_FACTORY_"  # what Spark gives to each of its Python processes begins so


class DataLossError(Exception):
    """Messages that a read planned for are not in the queue any more."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """For the block, or as a decorator: an error that is no bug hides the traceback.

    Only in a Python process of Spark's. A ValueError names an option or a column that is wrong;
    what is derived from it is a bug like any other.
    """
    try:
        yield
    except Exception as wrong:
        is_expected = isinstance(wrong, AerobeeError | StoreError | DataLossError)
        if is_expected or type(wrong) is ValueError:
            _hide()
        raise


def _hide() -> None:
    if any(name.startswith(OF_WORKERS) for name in os.environ):
        os.environ[HIDE] = "1"
