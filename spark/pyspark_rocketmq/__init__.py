"""Lets PySpark find the data source `rocketmq` without registering.

PySpark imports every top-level package whose name begins with `pyspark_` and takes its
`DefaultSource`; so this one is installed under that name, beside `aerobee`. A failing import here
would fail every data source of the session: without pyarrow there is simply no source.
"""

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

if find_spec("pyarrow") is not None:
    with suppress(ImportError):
        DefaultSource = import_module("aerobee.spark.source").RocketmqSource
