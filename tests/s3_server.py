"""A server that speaks S3, for tests: moto in a process of its own."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from aerobee.harness.child import Child

from .waiting import LONG, wait_until

BUCKET = "bucket"


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Its address, while it runs. It has the bucket `bucket`, and takes any keys."""
    stderr = folder / "s3.stderr"
    words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with Child(words, stderr):
        ready = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
        wait_until(lambda: ready.search(stderr.read_text()) is not None, stderr.read_text)
        url: str = ready.findall(stderr.read_text())[0]
        urlopen(Request(f"{url}/{BUCKET}", method="PUT"), timeout=LONG).close()
        yield url
