"""The Python process that runs a task: Spark keeps it and gives it one task after the other."""

import gc

from pyspark import TaskContext

_kept: list[int] = []  # how many objects were kept, once


def keep_modules() -> None:
    """Take all that is imported by now out of the garbage collector's sight; once in a process.

    PySpark collects after each task, before it takes the next one, and the collector would look at
    100,000 objects of modules each time: 20 to 60 ms. In the process of a task only; whatever else
    imports the source collects as it likes.
    """
    if _kept or TaskContext.get() is None:
        return
    gc.freeze()
    _kept.append(gc.get_freeze_count())
