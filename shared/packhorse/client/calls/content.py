"""Content: nodes of the author, or of a subscriber whose URL is given as `content`."""

from collections.abc import Mapping
from typing import Any

from packhorse.client.exchange import (
    Answer,
    Document,
    Operation,
    Request,
    given,
    listed,
    quoted,
    requested,
)

_PAGE = 1_000


def node(path: str) -> Operation[Document]:
    """Return a node: `path`, `type`, `properties`, `binaries`, and its `etag`.

    Raises `NotFound` where there is none.
    """
    answer: Answer = yield Request("GET", _of(path), "content")
    return Document({**answer.document(), "etag": answer.headers.get("etag")})


def put_node(
    path: str,
    type: str,  # noqa: A002 - the word of the API
    properties: Mapping[str, Any] | None = None,
    *,
    binaries: Mapping[str, Any] | None = None,
    if_match: str | None = None,
) -> Operation[Document]:
    """Write a node, and the folders above it where they are missing; return `path` and `etag`.

    With `if_match` only while its etag is this one; `*`: only where it is. Raises `Conflict`.
    """
    body = {"type": type, **given(properties=properties, binaries=binaries)}
    return (
        yield from requested(Request("PUT", _of(path), "content", body=body, headers=_if(if_match)))
    )


def patch_node(
    path: str,
    properties: Mapping[str, Any],
    *,
    if_match: str | None = None,
) -> Operation[Document]:
    """Change some properties of a node; one that is None goes. Returns `path` and `etag`."""
    kind = {"Content-Type": "application/merge-patch+json"}
    return (
        yield from requested(
            Request(
                "PATCH",
                _of(path),
                "content",
                body={"properties": dict(properties)},
                headers={**_if(if_match), **kind},
                repeatable=if_match is None,
            )
        )
    )


def delete_node(path: str, *, if_match: str | None = None) -> Operation[Document]:
    """Remove a node and all below it; return how many `nodes` that were."""
    return (yield from requested(Request("DELETE", _of(path), "content", headers=_if(if_match))))


def children(path: str, *, limit: int = 1_000) -> Operation[list[Document]]:
    """Return the paths and types of what lies directly below a node, up to `limit`."""
    url = f"/children{quoted(path)}"
    return (yield from listed(url, "children", limit, _PAGE, "content"))


def subtree(path: str, *, limit: int = 1_000) -> Operation[list[Document]]:
    """Return a node and what lies below it, up to `limit`, in the order of the paths."""
    url = f"/subtrees{quoted(path)}"
    return (yield from listed(url, "nodes", limit, _PAGE, "content"))


def _of(path: str) -> str:
    return f"/content{quoted(path)}"


def _if(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"If-Match": if_match}
