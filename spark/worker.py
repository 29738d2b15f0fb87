"""The Python process that runs a task: Spark keeps it and gives it one task after the other."""

import gc

from pyspark import TaskContext

_kept: list[int] = []  # how many objects were kept, once


def keep_modules() -> None:
    """Exclude all imported modules from garbage collection; once in a process.

    PySpark collects after each task, before it takes the next one, and the collector would look at
    100,000 objects of modules each time: 20 to 60 ms. Other processes that
    import the source keep their collector as it is.
    """
    if _kept or TaskContext.get() is None:
        return
    gc.freeze()
    _kept.append(gc.get_freeze_count())
