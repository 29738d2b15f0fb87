"""A catalog over HTTP that does wrong when it is told; its tables are in a catalog of SQLite."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest

CUT, SILENT = 0, -1  # instead of a status: the connection is closed, or stays without an answer
WITHOUT, BEHIND = "without its effect", "behind its effect"


class RestCatalog:
    """`faults` are what becomes of the next commits: a status, and whether the commit is made.

    `commits` counts those that were made. A silent one sets `is_silent`, and waits for `closing`.
    """

    def __init__(self, inner: SqlCatalog) -> None:
        self.inner = inner
        self.faults: list[tuple[int, str]] = []
        self.commits = 0
        self.is_silent = threading.Event()
        self.closing = threading.Event()

    def create_namespace(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.inner.create_namespace(tuple(asked["namespace"]))
        return asked

    def create_table(self, namespace: str, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = CreateTableRequest.model_validate(asked)
        assert wanted.partition_spec is not None
        assert wanted.write_order is not None
        table = self.inner.create_table(
            (namespace, wanted.name),
            wanted.table_schema,
            wanted.location,
            wanted.partition_spec,
            wanted.write_order,
            wanted.properties,
        )
        return self.load_table(*table.name())

    def load_table(self, namespace: str, name: str) -> dict[str, Any]:
        table = self.inner.load_table((namespace, name))
        metadata = json.loads(table.metadata.model_dump_json())
        return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}

    def commit(self, namespace: str, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        wanted = CommitTableRequest.model_validate(asked)
        table = self.inner.load_table((namespace, name))
        status, when = self.faults.pop(0) if self.faults else (200, BEHIND)
        if when == BEHIND:
            self.inner.commit_table(table, wanted.requirements, wanted.updates)
            self.commits += 1
        if status == SILENT:
            self.is_silent.set()
            self.closing.wait()
        if status != 200:
            raise Fault(status)
        return self.load_table(namespace, name)


class Fault(Exception):
    """The answer is this status."""


@contextmanager
def served(inner: SqlCatalog) -> Iterator[tuple[RestCatalog, str]]:
    """The catalog on a free port of the loopback, and its address."""
    catalog = RestCatalog(inner)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path.startswith("/v1/config"):
                self._answer(lambda: {"defaults": {}, "overrides": {}})
                return
            *_, namespace, _, name = self.path.split("/")
            self._answer(lambda: catalog.load_table(namespace, name))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            match self.path.split("/")[3:]:
                case []:
                    self._answer(lambda: catalog.create_namespace(asked))
                case [namespace, "tables"]:
                    self._answer(lambda: catalog.create_table(namespace, asked))
                case [namespace, "tables", name]:
                    self._answer(lambda: catalog.commit(namespace, name, asked))

        def _answer(self, work: Callable[[], dict[str, Any]]) -> None:
            try:
                status, found = 200, work()
            except Fault as fault:
                status, found = fault.args[0], _error(fault, "Fault", fault.args[0])
            except NoSuchTableError as wrong:
                status, found = 404, _error(wrong, "NoSuchTableException", 404)
            except (
                CommitFailedException,
                NamespaceAlreadyExistsError,
                TableAlreadyExistsError,
            ) as wrong:
                status, found = 409, _error(wrong, "AlreadyExistsException", 409)
            if status in (CUT, SILENT):
                self.close_connection = True
                return
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield catalog, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        catalog.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _error(wrong: Exception, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": str(wrong), "type": kind, "code": code}}
