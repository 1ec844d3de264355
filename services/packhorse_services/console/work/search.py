"""Which jobs a visitor looks for, as the texts of the form; they are in the page's address."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Self

from fastapi import Query

from packhorse.client.exchange import given
from packhorse.jobs.conditions import template_of
from packhorse.jobs.names import MAX_NAME
from packhorse_services.console.frame.rendering import PageAddress

_AND = re.compile(r"\sand\s", re.IGNORECASE)
"""One blank at each side: of many in a row more would be tried at each."""
_Text = Annotated[str, Query(max_length=MAX_NAME)]
OPEN = ("ACTIVE", "QUEUED")


@dataclass(frozen=True)
class Search(PageAddress):
    """The fields of the form, whose jobs, and where the page begins. Empty: all of the first."""

    page = "jobs"

    at: _Text = ""
    state: _Text = "ALL"
    topic: _Text = ""
    queue: _Text = ""
    id: _Text = ""
    where: Annotated[str, Query(max_length=2_000)] = ""
    """Conditions on properties with `and` between them."""
    after: _Text = ""

    @classmethod
    def of(cls, form: Mapping[str, str]) -> Self:
        """Return what a form of ours brings back; what it does not name is empty."""
        return cls(**{one.name: form.get(one.name, "") for one in fields(cls)})

    @property
    def parameters(self) -> Mapping[str, str]:
        """The fields that are not empty, but for the page that is shown of it."""
        return {name: value for name, value in asdict(self).items() if value and name != "after"}

    @property
    def may_be_retried(self) -> bool:
        """Whether jobs that have ended are among them."""
        return self.state not in OPEN

    @property
    def may_be_stopped(self) -> bool:
        """Whether jobs that have not ended are among them."""
        return self.state in ("", "ALL", *OPEN)

    def conditions(self) -> list[str]:
        """Return the conditions one by one."""
        return [one.strip() for one in _AND.split(self.where)] if self.where.strip() else []

    def asked(self) -> dict[str, Any]:
        """Return what the service is asked for, as a body has it. Raises `InvalidFilter`."""
        conditions = self.conditions()
        return given(
            state=self.state or None,
            topic=self.topic.strip() or None,
            queue=self.queue.strip() or None,
            id=self.id.strip() or None,
            templates=[template_of(conditions)] if conditions else None,
        )

    def query(self, **changes: Any) -> dict[str, Any]:
        """Return the same as parameters of a list. Raises `InvalidFilter`."""
        asked = {**self.asked(), **changes}
        templates = asked.pop("templates", [])
        return {**asked, **given(template=[json.dumps(one) for one in templates] or None)}
