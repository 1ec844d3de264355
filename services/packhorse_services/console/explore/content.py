"""Content as the author and as each subscriber has it: a node, what lies below, its history."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import Depends, Query, Response

from packhorse.client.errors import ClientError, NotFound
from packhorse.client.exchange import Document, given, with_query
from packhorse.content.node import ROOT
from packhorse_services.console.frame.equivalents import Same, curl, same
from packhorse_services.console.frame.rendering import PageAddress
from packhorse_services.console.frame.trees import Branch, tree
from packhorse_services.console.frame.visit import PageVisit, Visit, page_router
from packhorse_services.console.upstream import each

router = page_router()

_CHILDREN = 100
_HISTORY = 20

_Path = Annotated[str, Query(max_length=2_048)]
_Name = Annotated[str, Query(max_length=255)]


@dataclass(frozen=True)
class ContentAddress(PageAddress):
    """A path and where it is looked at: at a subscriber, or with an empty name at the author."""

    page = "content"

    path: _Path = ROOT
    at: _Name = ""
    after: _Name = ""

    @property
    def above(self) -> list[tuple[str, str]]:
        """Names and addresses of the way down to the node, from the root on."""
        names = [name for name in self.path.split("/") if name]
        way = [("/", self.url(path=ROOT, after=""))]
        for number, name in enumerate(names, 1):
            way.append((name, self.url(path="/" + "/".join(names[:number]), after="")))
        return way


Address = Annotated[ContentAddress, Depends()]


@dataclass(frozen=True, slots=True)
class NodeShown:
    """A node, none at the root, with a page of what lies below it; `wrong` says why not."""

    node: Document | None = None
    properties: Branch | None = None
    children: Sequence[Document] = ()
    following: str = ""
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """Packages that had a node, newest first; `more`: not all of the journal was looked through.

    `wrong` says which agents did not answer.
    """

    rows: Sequence[dict[str, Any]] = ()
    more: bool = False
    wrong: Sequence[str] = ()


@router.get("/content")
async def show_content(visit: PageVisit, requested: Address) -> Response:
    """Show a node at the author, or at a subscriber."""
    served = visit.content_urls
    shown = NodeShown()
    if requested.at in served and visit.rights.read:
        shown = await _node(visit, requested)
    return visit.page(
        "content.html",
        requested=requested,
        shown=shown,
        served=served,
        agent=visit.agent(""),
        history=await _history(visit, requested.path),
        same=_same(visit, requested),
    )


async def _node(visit: Visit, requested: ContentAddress) -> NodeShown:
    client = visit.content(requested.at)
    after = given(after=requested.after or None)
    try:
        found = await client.node(requested.path) if requested.path != ROOT else None
        below = await client.get(
            with_query(f"/children{quote(requested.path)}", limit=_CHILDREN, **after), "content"
        )
    except NotFound:
        return NodeShown(wrong=f"There is no node at {requested.path} here.")
    except (ClientError, UnicodeError) as error:
        return NodeShown(wrong=str(error))
    last = parse_qs(urlsplit(below["next"] or "").query).get("after", [""])[0]
    following = requested.url(after=last) if last else ""
    properties = tree(found["properties"]) if found else None
    return NodeShown(found, properties, below["children"], following)


async def _history(visit: Visit, path: str) -> NodeHistory:
    """Return the newest packages that had a node; one request of each agent looks for them."""
    asked = with_query("/distributions", node=path, limit=_HISTORY)
    answers = await each(visit.agents, lambda agent: visit.publisher(agent).get(asked))
    pages = [(one.name, one.value) for one in answers if one.value]
    found = [{**one, "agent": agent} for agent, page in pages for one in page["distributions"]]
    found.sort(key=lambda one: str(one["accepted_at"]), reverse=True)
    more = len(found) > _HISTORY or any(page["next"] for _, page in pages)
    wrong = [f"{one.name}: {one.error}" for one in answers if one.error]
    return NodeHistory(found[:_HISTORY], more, wrong)


def _same(visit: Visit, requested: ContentAddress) -> list[Same]:
    url = visit.content_urls.get(requested.at, "")
    path = quote(requested.path)
    if not url or not path.startswith("/"):
        return []
    words = ["--server", url, "content", "export", requested.path, "exported.zip"]
    return [
        Same("The node", "", curl(f"{url}/content{path}")),
        Same("A binary, by its name", "", curl(f"{url}/binaries{path}?name=data")),
        same("Files at and below it", words, curl(f"{url}/subtrees{path}")),
    ]
