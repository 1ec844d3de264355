"""What an event is: a topic and properties, for whoever is there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DISTRIBUTE = "event.distribute"
"""Property of an event that shall reach every instance; its value has no meaning."""
APPLICATION = "event.application"
"""Property of an event that comes from another instance: its id. No sender sets it."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened."""

    topic: str
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether it was sent on this instance."""
        return APPLICATION not in self.properties
