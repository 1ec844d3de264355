"""The five topics: their names and what packhorse needs of each."""

from collections.abc import Mapping
from dataclasses import dataclass

_HOUR_MS = 3600 * 1000


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics' names, which every program of one installation shares."""

    package: str = "aemdistribution_package"
    status: str = "aemdistribution_status"
    discovery: str = "aemdistribution_discovery"
    command: str = "aemdistribution_command"
    event: str = "aemdistribution_event"

    @classmethod
    def named(cls, prefix: str, names: Mapping[str, str]) -> "Topics":
        """Return the names in `names` (`package`, `status`…), those that are empty by the prefix.

        Raises `ValueError` where two topics would have one name.
        """
        chosen = {part: names.get(part) or f"{prefix}_{part}" for part in _PARTS}
        for part, name in chosen.items():
            if twin := next((one for one in _PARTS if one != part and chosen[one] == name), ""):
                raise ValueError(f"{name} is the name of two topics: {part} and {twin}")
        return cls(**chosen)

    def by_part(self) -> dict[str, str]:
        """Return the names by what the topics are, such as `package`."""
        return {part: str(getattr(self, part)) for part in _PARTS}


_PARTS = ("package", "status", "discovery", "command", "event")

PACKAGE_RETENTION_HOURS = 7 * 24
"""How long packages are kept where no setting says otherwise."""
PACKAGE_RETENTION_MS = PACKAGE_RETENTION_HOURS * _HOUR_MS
DISCOVERY_RETENTION_MS = _HOUR_MS
MAX_RECORD_BYTES = 1024 * 1024
"""Largest record of any topic, headers and key not counted."""
