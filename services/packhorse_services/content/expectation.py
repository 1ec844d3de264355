"""In which state a client expects the node that it writes (RFC 9110, preconditions)."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header

from packhorse.content.requests import EntityTags
from packhorse.runtime.problems import Problem


@dataclass(frozen=True, slots=True)
class Expectation:
    """What If-Match and If-None-Match ask for."""

    match: EntityTags | None
    absent: bool

    @property
    def digests(self) -> list[str] | None:
        """The versions that may be written over, or None for any."""
        return None if self.match is None or self.match.anything else self.match.digests


async def _expectation(
    if_match: Annotated[
        str | None, Header(description="Write only over a version with one of these ETags")
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="`*`: write only where nothing is")
    ] = None,
) -> Expectation:
    if if_none_match is not None and (if_match is not None or if_none_match.strip() != "*"):
        raise Problem(400, detail="If-None-Match is understood alone and as * only, to create")
    match = None if if_match is None else EntityTags.parse(if_match, weak=False)
    return Expectation(match, absent=if_none_match is not None)


Expected = Annotated[Expectation, Depends(_expectation)]
