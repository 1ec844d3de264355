"""Which jobs a visitor looks for, as the texts of the form; they are in the page's address."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated
from urllib.parse import parse_qs, urlencode

from fastapi import Query

from packhorse.jobs.conditions import template_of
from packhorse.jobs.filters import JobFilter, StateGroup, parse_group
from packhorse.jobs.names import MAX_NAME

LONGEST_WHERE = 2_000
_MOST_FIELDS = 20
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)

_Text = Annotated[str, Query(max_length=MAX_NAME)]


@dataclass(frozen=True)
class Search:
    """The fields of the form, and where the page begins; a dependency. Empty: all."""

    state: _Text = StateGroup.ALL.value
    topic: _Text = ""
    queue: _Text = ""
    id: _Text = ""
    where: Annotated[str, Query(max_length=LONGEST_WHERE)] = ""
    """Conditions on properties with `and` between them."""
    after: _Text = ""

    def filter(self) -> JobFilter:
        """Return what it means. Raises `InvalidFilter` or `InvalidName`, to be shown."""
        conditions = _AND.split(self.where.strip()) if self.where.strip() else []
        return JobFilter(
            group=parse_group(self.state or StateGroup.ALL),
            topic=self.topic.strip() or "**",
            queue=self.queue.strip() or None,
            id=self.id.strip() or None,
            templates=[template_of(conditions)] if conditions else [],
        )

    def query(self, **changes: str) -> str:
        """Return it as the query of an address, changed."""
        return urlencode([*replace(self, **changes).parameters()])

    def parameters(self) -> Sequence[tuple[str, str]]:
        """Return the fields that are not empty, with their names."""
        given = ((field.name, str(getattr(self, field.name))) for field in fields(self))
        return [(name, value) for name, value in given if value]


def parse_search(query: str) -> Search:
    """Return what a query says that one of our forms has brought back; the rest is dropped."""
    try:
        given = parse_qs(query, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return Search()
    names = {field.name for field in fields(Search)}
    kept = {name: values[0] for name, values in given.items() if name in names}
    return Search(**{name: value for name, value in kept.items() if len(value) <= LONGEST_WHERE})
