"""Whether the tables have measures of those whom a report is asked for: a name may be wrong."""

from packhorse_services.pipeline.errors import NotThere
from packhorse_services.pipeline.queries import RELATION, literal
from packhorse_services.pipeline.reports.schemas import REPORTS
from packhorse_services.pipeline.reports.source import ReportTables


def require_measured(tables: ReportTables, subscriber: str | None, agent: str | None) -> None:
    """Raise `NotThere` for a subscriber or a publisher agent that no table of measures names.

    Hours do not count: who was silent in those of a report is known all the same.
    """
    if subscriber is not None:
        _require(tables, "subscriber", subscriber, "subscriber")
    if agent is not None:
        _require(tables, "publisher_agent", agent, "publisher agent")


def _require(tables: ReportTables, column: str, name: str, what: str) -> None:
    for report in REPORTS.values():
        if column not in report.columns:
            continue
        version = tables.latest(report.table, (column,))
        found = f"SELECT 1 AS found FROM {RELATION} WHERE {column} = {literal(name)} LIMIT 1"  # noqa: S608 - quoted
        if version is not None and any(version.rows(found)):
            return
    raise NotThere(
        f"the tables have no measures of {what} {name!r}; correct the name, or run "
        "packhorse-pipeline archive and measures first"
    )
