"""Runs programs that use Spark in one process, one after the other: they share its JVM.

A line of input has a program and its arguments, as JSON. What the program printed, and how it
failed if it did, is a line of output.
"""

import json
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from io import StringIO


def run(words: list[str]) -> dict[str, str]:
    sys.argv = words
    out, failed = StringIO(), ""
    try:
        with redirect_stdout(out):
            runpy.run_path(words[0], run_name="__main__")
    except BaseException:
        failed = traceback.format_exc()
    return {"event": "ended", "out": out.getvalue(), "failed": failed}


for line in sys.stdin:
    print(json.dumps(run(json.loads(line))), flush=True)
