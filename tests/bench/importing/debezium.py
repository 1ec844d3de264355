"""Kafka Connect standalone with Debezium's JDBC sink: pages from a topic into the same table.

It reads the bare pages, checks no digest, makes no folders and keeps its offset outside of the
transaction (at least once). Its second half is measured, when its JVM is warm.
"""

import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from packhorse.runtime import leash
from packhorse_services.cli.stack.ports import free_port
from tests.bench.importing.material import Material
from tests.bench.importing.measuring import Cost, Looker, Watch
from tests.harness.kafka import runtime

_POM = Path(__file__).with_name("pom.xml")
_BATCH = 2_000
_FOLDER = "debezium-3.3.1-connect-4.1.1"

_WORKER = """
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:{port}
consumer.max.poll.records={batch}
consumer.max.partition.fetch.bytes=16777216
plugin.discovery=service_load
"""

# The page is the value; the path is the key, so that a row is what the product writes.
_CONNECTOR = """
name={name}
connector.class=io.debezium.connector.jdbc.JdbcSinkConnector
tasks.max=1
topics={topic}
connection.url=jdbc:postgresql://{host}:{port}/{database}
connection.username={user}
connection.password={password}
insert.mode=upsert
primary.key.mode=record_key
primary.key.fields=path
schema.evolution=none
collection.name.format=content.node
batch.size={batch}
transforms=path,page,type,binaries
transforms.path.type=org.apache.kafka.connect.transforms.HoistField$Key
transforms.path.field=path
transforms.page.type=org.apache.kafka.connect.transforms.HoistField$Value
transforms.page.field=properties
transforms.type.type=org.apache.kafka.connect.transforms.InsertField$Value
transforms.type.static.field=type
transforms.type.static.value=page
transforms.binaries.type=org.apache.kafka.connect.transforms.InsertField$Value
transforms.binaries.static.field=binaries
transforms.binaries.static.value={{}}
"""


class Debezium:
    """Runs the sink, a process a run."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def __call__(self, made: Material) -> Cost:
        """Import everything; the first half is left out, the start of the JVM with it."""
        url = made.databases.new("debezium")
        with tempfile.TemporaryDirectory() as folder, Looker(url) as looker:
            process = self._start(made, url, Path(folder))
            try:
                said = Path(folder, "log")

                def lives() -> bool:
                    if process.poll() is not None or "unrecoverable" in said.read_text():
                        raise SystemExit(said.read_text()[-3_000:])
                    return True

                skipped, half = made.mark(0.5)
                looker.wait_for(half, lives)
                watch = Watch(made.databases.server, made.broker.pid, [process.pid])
                own = looker.cpu_s()
                count, last = made.mark(1.0)
                looker.wait_for(last, lives)
                cost = watch.cost(count - skipped, looker.cpu_s() - own)
            finally:
                process.terminate()
                process.wait(120)
        made.check(url, len(made.packages))
        return cost

    def _start(self, made: Material, url: str, folder: Path) -> subprocess.Popen[bytes]:
        server = conninfo_to_dict(url)
        worker, connector = folder / "worker.properties", folder / "connector.properties"
        worker.write_text(
            _WORKER.format(
                bootstrap=made.broker.bootstrap, folder=folder, port=free_port(), batch=_BATCH
            )
        )
        connector.write_text(
            _CONNECTOR.format(
                name=f"sink-{made.rows_topic}-{next(self._numbers)}",
                topic=made.rows_topic,
                host=server["host"],
                port=server["port"],
                database=server["dbname"],
                user=server["user"],
                password=server["password"],
                batch=_BATCH,
            )
        )
        java, _ = runtime.java()
        program = ("org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(connector))
        with Path(folder, "log").open("wb") as log:
            return subprocess.Popen(
                [*leash.on_leash(), str(java), "-Xmx1g", "-cp", f"{_jars()}/*", *program],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip


def _jars() -> Path:
    """Return the folder of the jars, copied there by Maven for the first caller."""
    folder = runtime.cache_folder() / _FOLDER
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as workplace:
            pom = shutil.copy(_POM, workplace)
            goal = ("dependency:copy-dependencies", f"-DoutputDirectory={workplace}/jars")
            subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True)
            Path(workplace, "jars").rename(folder)
    return folder
