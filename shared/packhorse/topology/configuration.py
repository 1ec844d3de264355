"""The settings of every program that takes part in a topology."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from packhorse.runtime.configuration import ProcessConfiguration
from packhorse.topology.events import MIN_EVENT_DELAY_S
from packhorse.topology.lease.judgement import LONGEST_INTERVAL
from packhorse.topology.properties import DEFAULT_PREFIX

Store = Literal["lease", "voting"]

_TIMES: dict[Store, tuple[float, float]] = {"lease": (2.0, 10.0), "voting": (15.0, 20.0)}


class TopologyConfiguration(ProcessConfiguration):
    """Settings of an instance.

    All instances of a cluster must have the same store, times and order of prefixes.
    """

    instance_id: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")
    """Names this instance in the topology, after a restart too."""
    id_file: Path | None = None
    """Where the id is kept when none is set; without either, each start has a new one."""
    endpoint: str = Field(default="", max_length=500)
    """The URL under which others reach this program; it is announced."""
    topology_store: Store = "lease"
    """How the instances that share a database find each other."""
    topology_interval_s: float | None = Field(default=None, gt=0)
    """Seconds from one heartbeat to the next; by default 2 (lease) or 15 (voting)."""
    topology_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds after which a silent instance is gone; by default 10 (lease) or 20 (voting)."""
    min_event_delay_s: float = Field(default=MIN_EVENT_DELAY_S, ge=0)
    """Changes of the topology within this time are reported as one."""
    leader_prefix: str = Field(default=DEFAULT_PREFIX, pattern=r"^[A-Za-z0-9]{1,20}$")
    """The instance with the lowest prefix is the next to lead; with voting it leads at once."""

    @property
    def topology_times(self) -> tuple[float, float]:
        """Interval and time-out in seconds, with the store's defaults."""
        interval, timeout = _TIMES[self.topology_store]
        return (self.topology_interval_s or interval, self.topology_timeout_s or timeout)

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        interval, timeout = self.topology_times
        if not interval < timeout <= 86_400:
            raise ValueError(
                f"the heartbeat's interval ({interval} s) must be shorter than its time-out "
                f"({timeout} s), and that at most a day"
            )
        if self.topology_store == "lease" and interval > timeout * LONGEST_INTERVAL:
            raise ValueError(
                f"with leases the heartbeat's interval ({interval} s) may be {LONGEST_INTERVAL} of "
                f"its time-out ({timeout} s) at most"
            )
        if self.min_event_delay_s > timeout:
            raise ValueError(
                "the least delay of events must be between 0 and the heartbeat's time-out"
            )
        return self


class DatabaseConfiguration(TopologyConfiguration):
    """Settings of an instance with a database, to be mixed into a service's own."""

    database_url: SecretStr
    """The database of its cluster; the author's, or a subscriber's."""
    database_url_file: Path | None = None
