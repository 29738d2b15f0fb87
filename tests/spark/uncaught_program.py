"""Starts Spark as a command does, and ends a thread of its JVM by an error.

python uncaught_program.py MESSAGE
"""

import sys
from typing import Any

from aerobee.spark.session import session


def main(message: str) -> None:
    with session("uncaught", "local[1]") as spark:
        jvm: Any = spark.sparkContext._jvm
        java = jvm.java.lang
        error = java.OutOfMemoryError(message)
        throw = java.invoke.MethodHandles.throwException(java.Void.TYPE, error.getClass())
        work = java.invoke.MethodHandleProxies.asInterfaceInstance(
            java.Class.forName("java.lang.Runnable"), throw.bindTo(error)
        )
        thread = java.Thread(work)
        thread.start()
        thread.join()  # the handler of uncaught exceptions has run then
        print(f"the thread is {thread.getState()}, {spark.range(7).count()} rows")


if __name__ == "__main__":
    main(sys.argv[1])
