"""The journal: its topics, their records decoded, and the runs that clean up behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from fastapi import Depends, Query, Response

from packhorse.client.errors import ClientError
from packhorse.client.exchange import Document, given, with_query
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress, utc_moment
from packhorse_services.console.frame.trees import Branch, tree
from packhorse_services.console.frame.visit import PageVisit, Visit, followed_page, page_router

router = page_router()

_ROWS = 20
_BRANCHES = 100
_BRANCHES_OF_ONE = 1_000
Topic = Literal["package", "status", "discovery", "command", "event"]
TOPICS: tuple[str, ...] = get_args(Topic)
_Word = Annotated[str, Query(max_length=20)]


@dataclass(frozen=True)
class JournalAddress(PageAddress):
    """Which records: of a topic, from an offset or a time in UTC on; else the newest.

    `bodies` shows one record with the content that it carries.
    """

    page = "journal"

    topic: Topic = "package"
    partition: Annotated[int, Query(ge=0, le=10_000)] = 0
    offset: _Word = ""
    since: _Word = ""
    bodies: _Word = ""

    def path(self) -> str:
        """Return what is asked of the cleanup service. Raises `ValueError` for no time."""
        moment = utc_moment(self.since)
        return with_query(
            f"/journal/topics/{self.topic}/records",
            partition=self.partition,
            limit=1 if self.bodies else _ROWS,
            **given(
                offset=self.offset or None,
                since=moment.isoformat() if moment else None,
                bodies="true" if self.bodies else None,
            ),
        )

    @property
    def follows(self) -> bool:
        """Whether the newest records are shown."""
        return not (self.offset or self.since)


Address = Annotated[JournalAddress, Depends()]


@dataclass(frozen=True, slots=True)
class RecordShown:
    """A record with its message, and what its body carries, as trees."""

    record: Document
    message: Branch | None
    nodes: Branch | None


@dataclass(frozen=True, slots=True)
class RecordsShown:
    """A page of records, the newest first; `wrong` says why there are none."""

    rows: Sequence[RecordShown] = ()
    page: Document | None = None
    earlier: str = ""
    later: str = ""
    wrong: str = ""


@followed_page(router, "/journal")
async def show_journal(visit: PageVisit, requested: Address) -> Response:
    """Show records of a topic, the newest first."""
    shown = await _shown(visit, requested)
    return visit.followed(
        "journal",
        shown=shown,
        requested=requested,
        topics=TOPICS,
        known=bool(_url(visit)),
        same=_same(visit, requested) if shown.page else [],
    )


_DRY_RUN, _DRY = ("cleanup", "run", "--dry-run"), '{"dry_run": true}'


@router.get("/cleanup")
async def show_cleanup_runs(visit: PageVisit) -> Response:
    """Show the last runs that removed stored packages which the journal has forgotten."""
    runs: list[Document] = []
    wrong = ""
    if visit.rights.admin and _url(visit):
        client, _ = visit.service("cleanup", "")
        try:
            runs = await client.get("/cleanup/runs?limit=50", "cleanup")
        except ClientError as error:
            wrong = str(error)
    url = f"{_url(visit)}/cleanup/runs"
    lines = [Same("These runs", "", curl(f"{url}?limit=50"))]
    lines.append(same("A run that only says what it would", _DRY_RUN, curl(url, "POST", _DRY)))
    shown: dict[str, Any] = {"runs": runs, "wrong": wrong, "known": bool(_url(visit))}
    return visit.page("cleanup.html", **shown, same=lines if _url(visit) else [])


async def _shown(visit: Visit, requested: JournalAddress) -> RecordsShown:
    if not (visit.rights.admin and _url(visit)):
        return RecordsShown()
    try:
        client, _ = visit.service("cleanup", "")
        page = await client.get(requested.path(), "cleanup")
    except (ClientError, ValueError) as error:
        return RecordsShown(wrong=str(error))
    found: list[Document] = page["records"]
    first = found[0]["offset"] if found else page["next_offset"]
    last = found[-1]["offset"] + 1 if found else page["next_offset"]
    size = _BRANCHES_OF_ONE if requested.bodies else _BRANCHES
    before = max(page["oldest_offset"], first - _ROWS)
    return RecordsShown(
        rows=[_row(one, size) for one in reversed(found)],
        page=page,
        earlier=_at(requested, before) if first > page["oldest_offset"] else "",
        later=_at(requested, last) if last < page["next_offset"] else "",
    )


def _url(visit: Visit) -> str:
    """Return where the cleanup service is; empty where the console was not told."""
    return visit.served("cleanup").get("", "")


def _at(requested: JournalAddress, offset: int) -> str:
    return requested.url(offset=offset, since="", bodies="")


def _row(record: Document, size: int) -> RecordShown:
    message: Any = record["message"]
    return RecordShown(
        record,
        tree(message, size) if message else None,
        tree(record["nodes"], size) if record["nodes"] is not None else None,
    )


def _same(visit: Visit, requested: JournalAddress) -> list[Same]:
    return [Same("These records", "", curl(f"{_url(visit)}{requested.path()}"))]
