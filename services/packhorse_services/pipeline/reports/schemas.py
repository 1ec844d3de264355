"""What a report holds. The fields of a row are the columns that are read from its table."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, Field

from packhorse_services.pipeline.storage import tables


class DeliveryRow(BaseModel):
    """What one subscriber did with one publisher agent's packages within an hour."""

    hour: datetime = Field(description="The hour's begin")
    subscriber: str
    publisher_agent: str
    delivered: int = Field(description="Packages imported")
    latency_p50_ms: int | None = Field(description="From accepted to imported, milliseconds")
    latency_p95_ms: int | None
    latency_p99_ms: int | None
    latency_max_ms: int | None
    bytes: int
    nodes: int
    attempts: int
    failures: int
    removed: int
    skipped: int
    backlog_end: int = Field(
        description="Packages that waited when the hour ended; 0 without an announcement"
    )
    blocked_ms: int = Field(description="How long a package that fails held up the others")
    editable: bool


class FailureRow(BaseModel):
    """How often a subscriber failed for one reason within an hour."""

    hour: datetime
    subscriber: str
    publisher_agent: str
    reason: str
    count: int


class SlowestRow(BaseModel):
    """One of the paths that took a subscriber longest within an hour."""

    hour: datetime
    subscriber: str
    publisher_agent: str
    rank: int = Field(description="1 is the slowest of the subscriber, publisher agent and hour")
    path: str = Field(description="The first of the package's paths")
    paths: int = Field(description="How many paths the package has")
    latency_ms: int
    package_id: str
    offset: int


class PublishingRow(BaseModel):
    """What the journal took of one publisher agent within an hour, by the journal's time."""

    hour: datetime
    publisher_agent: str
    packages: int
    adds: int
    deletes: int
    invalidates: int
    tests: int
    bytes: int
    nodes: int
    latency_p50_ms: int | None = Field(description="From accepted to in the journal, milliseconds")
    latency_p95_ms: int | None
    latency_p99_ms: int | None
    latency_max_ms: int | None


class _Page(BaseModel):
    model_config = {"populate_by_name": True}

    begin: datetime = Field(alias="from", description="The first hour's begin")
    end: datetime = Field(alias="to", description="The last hour's end")
    next: str | None = Field(description="Where the report goes on; null on its last page")


class DeliveryReport(_Page):
    """A page of the delivery report, by hour, subscriber and publisher agent."""

    rows: list[DeliveryRow]


class FailureReport(_Page):
    """A page of the failures, by hour, subscriber, publisher agent and reason."""

    rows: list[FailureRow]


class SlowestReport(_Page):
    """A page of the slowest paths, by hour, subscriber, publisher agent and rank."""

    rows: list[SlowestRow]


class PublishingReport(_Page):
    """A page of what was published, by hour and publisher agent."""

    rows: list[PublishingRow]


@dataclass(frozen=True, slots=True)
class ReportKind:
    """One kind of report: its table, its columns, and the columns that order and name its rows."""

    name: str
    table: str
    row: type[BaseModel]
    key: tuple[str, ...]
    """SQL expressions that order the rows, no two of which have the same; short ones."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in the order in which they are shown."""
        return tuple(self.row.model_fields)

    @property
    def has_subscribers(self) -> bool:
        """Whether rows belong to a subscriber."""
        return "subscriber" in self.row.model_fields


_SUBSCRIPTION = ("hour", "subscriber", "publisher_agent")
DELIVERY = ReportKind("delivery", tables.DELIVERY, DeliveryRow, _SUBSCRIPTION)
FAILURES = ReportKind("failures", tables.FAILURES, FailureRow, (*_SUBSCRIPTION, "md5(reason)"))
SLOWEST = ReportKind("slowest", tables.SLOWEST, SlowestRow, (*_SUBSCRIPTION, "rank"))
PUBLISHING = ReportKind("publishing", tables.PUBLISHING, PublishingRow, ("hour", "publisher_agent"))

REPORTS: Mapping[str, ReportKind] = {
    report.name: report for report in (DELIVERY, FAILURES, SLOWEST, PUBLISHING)
}
