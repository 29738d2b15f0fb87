"""A REST catalog for tests: namespaces, tables and commits in memory, and faults of commits."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.update import update_table_metadata

from ..waiting import LONG

TOKEN = "secret"
NONE = ""  # no fault
SILENT = "silent"  # no answer, to anything


class RestDouble:
    """The state of the catalog. `fault` is that of the next commit: a status of HTTP or `silent`,
    before its effect or, with `is_made`, after it."""

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.tables: dict[str, TableMetadata] = {}
        self.fault, self.is_made = NONE, False
        self.is_silent = False
        self.ends = threading.Event()
        self.lock = threading.Lock()
        self.commits = 0

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = path.partition("?")[0].strip("/").split("/")[1:]
        if self.is_silent:
            self.ends.wait(LONG)
        with self.lock:
            if parts == ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            if parts == ["namespaces"]:
                name = ".".join(json.loads(body)["namespace"])
                if name in self.namespaces:
                    return 409, _error("AlreadyExistsException", name)
                self.namespaces.add(name)
                return 200, {"namespace": [name], "properties": {}}
            if parts[-1] == "tables":
                return self._create(CreateTableRequest.model_validate_json(body))
            metadata = self.tables.get(parts[-1])
            if metadata is None:
                return 404, _error("NoSuchTableException", parts[-1])
            if method == "GET":
                return 200, _table(metadata)
            return self._faulty_commit(metadata, CommitTableRequest.model_validate_json(body))

    def _create(self, asked: CreateTableRequest) -> tuple[int, Any]:
        if asked.name in self.tables:
            return 409, _error("AlreadyExistsException", asked.name)
        assert asked.partition_spec is not None
        assert asked.write_order is not None
        assert asked.location is not None
        self.tables[asked.name] = new_table_metadata(
            asked.table_schema,
            asked.partition_spec,
            asked.write_order,
            asked.location,
            asked.properties,
        )
        return 200, _table(self.tables[asked.name])

    def _faulty_commit(self, metadata: TableMetadata, asked: CommitTableRequest) -> tuple[int, Any]:
        fault, self.fault = self.fault, NONE
        if not fault:
            return self._commit(metadata, asked)
        if self.is_made:
            assert self._commit(metadata, asked)[0] == 200
        if fault == SILENT:
            self.lock.release()
            self.ends.wait(LONG)
            self.lock.acquire()
            return 500, _error("Late", "")
        return int(fault), _error("Fault", "on purpose")

    def _commit(self, metadata: TableMetadata, asked: CommitTableRequest) -> tuple[int, Any]:
        try:
            for each in asked.requirements:
                each.validate(metadata)
        except CommitFailedException as wrong:
            return 409, _error("CommitFailedException", str(wrong))
        made = update_table_metadata(metadata, asked.updates)
        self.tables[asked.identifier.name] = made
        self.commits += 1
        return 200, _table(made)


def _table(metadata: TableMetadata) -> dict[str, Any]:
    said = json.loads(metadata.model_dump_json())
    return {"metadata-location": f"{metadata.location}/metadata.json", "metadata": said}


def _error(kind: str, text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": kind, "code": 400}}


@contextmanager
def serving(double: RestDouble) -> Iterator[str]:
    """The address of the catalog, while it serves."""

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, said = 401, _error("NotAuthorizedException", "who are you?")
            if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                status, said = double.answer(self.command, self.path, body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = handle_one

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        double.ends.set()
        server.shutdown()
        thread.join()
        server.server_close()
