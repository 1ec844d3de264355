"""ETags of what is answered, and those that a client names (RFC 9110)."""

import hashlib
from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Header, Response

from packhorse.runtime.problems import Problem

MAX_TAGS = 1000
"""Characters of a header that lists entity tags."""

_ANY = "*"


class EntityTags:
    """A list of entity tags, or the star that stands for any."""

    def __init__(self, digests: Sequence[str], *, anything: bool = False) -> None:
        self.digests = list(digests)
        self.anything = anything

    def __contains__(self, digest: str) -> bool:
        return self.anything or digest in self.digests

    @classmethod
    def parse(cls, header: str, *, weak: bool) -> "EntityTags":
        """Return what `header` lists; weak ones match nothing unless `weak` (RFC 9110).

        Raises `Problem` 400 for what is no such list.
        """
        if header.strip() == _ANY:
            return cls((), anything=True)
        digests = []
        for tag in filter(None, map(str.strip, header.split(","))):  # ours hold no comma
            quoted = tag.removeprefix("W/")
            if len(quoted) < 2 or '"' in quoted[1:-1] or not quoted[0] == quoted[-1] == '"':
                raise Problem(400, detail=f'{header[:80]!r} is no list of ETags such as "0123abcd"')
            if weak or quoted == tag:
                digests.append(quoted[1:-1])
        return cls(digests)


async def known_tags(
    if_none_match: Annotated[
        str | None, Header(max_length=MAX_TAGS, description="ETags that the client has")
    ] = None,
) -> EntityTags:
    """Return the versions that the client has already."""
    return EntityTags.parse(if_none_match or "", weak=True)


KnownTags = Annotated[EntityTags, Depends(known_tags)]


async def _part(
    _known: KnownTags,
    _range: Annotated[
        str | None,
        Header(
            max_length=MAX_TAGS,
            alias="Range",
            description="The wanted bytes, such as `bytes=0-1023`",
        ),
    ] = None,
    _if_range: Annotated[
        str | None,
        Header(
            max_length=MAX_TAGS,
            alias="If-Range",
            description="The ETag that `Range` is for; else all",
        ),
    ] = None,
) -> None:
    """Read nothing: whoever answers with bytes does."""


ANY_PART = Depends(_part)
"""Declares the headers by which a route of bytes answers 304 or a part; the route reads them."""


def entity_tag(digest: str) -> str:
    """Return the ETag of what has a digest."""
    return f'"{digest}"'


def digest_of(content: bytes) -> str:
    """Return another digest whenever anything is different."""
    return hashlib.sha256(content).hexdigest()[:24]


def kept(digest: str, *, weak: bool = False) -> dict[str, str]:
    """Return the headers of what a client may keep, and asks for anew."""
    tag = f"W/{entity_tag(digest)}" if weak else entity_tag(digest)
    return {"ETag": tag, "Cache-Control": "private, no-cache"}


def tagged(content: bytes, known: EntityTags, media_type: str = "application/json") -> Response:
    """Return content with its ETag, or 304 when the client has it."""
    digest = digest_of(content)
    if digest in known:
        return Response(status_code=304, headers=kept(digest))
    return Response(content, 200, kept(digest), media_type)
