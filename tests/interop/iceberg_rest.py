"""A real REST catalog, that of the Apache Iceberg project, on SQLite and with its tables on S3."""

from pathlib import Path

from aerobee.harness import java_side
from aerobee.harness.child import Child

from ..waiting import PROCESS

ROOT = Path(__file__).parents[2]
POM = ROOT / "deploy" / "lake" / "pom.xml"  # what its container runs
PROGRAM = ROOT / "tests" / "interop" / "iceberg" / "LoopbackCatalog.java"
S3 = {
    "s3.access-key-id": "any",
    "s3.secret-access-key": "any-secret",
    "client.region": "us-east-1",
}


class IcebergRest:
    """The catalog as a process on the loopback. It keeps its port and its state in `folder`."""

    def __init__(self, folder: Path, s3: str) -> None:
        (port,) = java_side.free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        properties = S3 | {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{folder}/rest.db",
            "jdbc.schema-version": "V1",
            "warehouse": "s3://bucket/warehouse",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": s3,
            "s3.path-style-access": "true",
        }
        self._stderr = folder / "rest.stderr"
        self._argv = [
            *("java", "-Xmx256m", *java_side.QUICK_START),
            *("-cp", f"{java_side.jars(POM)}/*", str(PROGRAM), str(port)),
            *(f"{key}={value}" for key, value in properties.items()),
        ]

    def start(self) -> None:
        """Start it, and return once it serves. ChildFailed."""
        self._child = Child(self._argv, self._stderr)
        self._child.wait_line(lambda line: line == "ready", PROCESS)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._child.kill()
