"""An archive, and subscribers that have imported it, for tests of the audit."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field

from psycopg import Connection
from psycopg.types.json import Jsonb
from pyspark.sql import SparkSession

from packhorse.db.connect import connect
from packhorse.packages.apply import apply
from packhorse.packages.path_filter import EVERYTHING, PathFilter
from packhorse.wire.package_codec import decode_package
from packhorse_services.pipeline.audit.archived import ArchiveEnd
from packhorse_services.pipeline.audit.expected import Expectations
from packhorse_services.pipeline.audit.outcome import Audited
from packhorse_services.pipeline.audit.task import Audit
from packhorse_services.pipeline.storage.location import Location
from tests.harness.clock import ManualClock
from tests.harness.feed import TOPICS
from tests.harness.history import JOURNAL, History
from tests.harness.postgres import Databases


@dataclass
class Site:
    """An archive, and subscribers that have imported it."""

    spark: SparkSession
    location: Location
    databases: Databases
    history: History
    urls: dict[str, str]
    connections: ExitStack
    clock: ManualClock = field(default_factory=ManualClock)
    expected: dict[tuple[float, Callable[[], None] | None], Expectations] = field(
        default_factory=dict
    )
    """Of audits that wait so long and archive so: what is expected is the same, if nothing changes.
    """

    @property
    def folds(self) -> int:
        return sum(one.folds for one in self.expected.values())

    def subscriber(
        self,
        name: str,
        *,
        removed: tuple[int, ...] = (),
        up_to: int = -1,
        path_filter: PathFilter = EVERYTHING,
    ) -> Connection:
        """Return a connection to a new subscriber that has imported everything but some."""
        self.urls[name] = self.databases.new(name)
        connection = self.connections.enter_context(
            closing(connect(self.urls[name], "tests", autocommit=True))
        )
        last = self.history.next_offset - 1 if up_to < 0 else up_to
        with connection.transaction():
            for record in self.history.records:
                if record.offset <= last and record.offset not in removed:
                    package = decode_package(record.headers, record.value)
                    apply(connection, [package], self.history.bodies, path_filter=path_filter)
            if path_filter is not EVERYTHING:
                connection.execute(
                    "INSERT INTO bookkeeping.content_filter "
                    "(include, exclude, map_paths, exclude_properties) "
                    "VALUES (%(include)s, %(exclude)s, %(map_paths)s, %(exclude_properties)s)",
                    {
                        **{name: list(names) for name, names in asdict(path_filter).items()},
                        "map_paths": Jsonb(dict(path_filter.map_paths)),
                    },
                )
            connection.execute(
                "INSERT INTO bookkeeping.position "
                "(publisher_agent, journal_id, epoch, log_offset, package_id) "
                "VALUES ('main', %s, 1, %s, '')",
                (JOURNAL, last),
            )
        return connection

    def audit(
        self,
        *names: str,
        path: str = "/",
        limit: int = 100,
        wait: float = 0.0,
        archive: Callable[[], None] | None = None,
    ) -> list[Audited]:
        if (wait, archive) not in self.expected:
            end = ArchiveEnd(self.location, TOPICS.package, wait, archive, self.clock)
            made = Expectations(self.spark, end, str(self.history.bodies.root), since_start=False)
            self.expected[wait, archive] = self.connections.enter_context(closing(made))
        expected, run = self.expected[wait, archive], f"audit-{len(self.urls)}"
        audit = Audit(self.spark, self.location, run, expected, path, limit)
        return audit.all({name: self.urls[name] for name in names})


def reported(audited: Audited) -> set[tuple[str, str, int | None]]:
    assert audited.problem == ""
    return {(one.kind, one.path, one.offset) for one in audited.findings}
