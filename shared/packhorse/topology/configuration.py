"""The settings of every program that takes part in a topology."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from packhorse.runtime.configuration import InvalidConfiguration, ProcessConfiguration
from packhorse.topology.events import MIN_EVENT_DELAY_S
from packhorse.topology.open import TopologySettings


class TopologyConfiguration(ProcessConfiguration):
    """Settings of an instance, to be mixed into a service's own.

    `topology` is what they come to.
    """

    instance_id: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")
    """Names this instance in the topology, after a restart too."""
    id_file: Path | None = None
    """Where the id is kept when none is set; without either, each start has a new one."""
    endpoint: str = Field(default="", max_length=500)
    """The URL under which others reach this program; it is announced."""
    topology_store: Literal["lease", "voting"] = "lease"
    """How the instances that share a database find each other."""
    topology_interval_s: float | None = Field(default=None, gt=0)
    """Seconds from one heartbeat to the next; by default 2 (lease) or 15 (voting)."""
    topology_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds after which a silent instance is gone; by default 10 (lease) or 20 (voting)."""
    min_event_delay_s: float = Field(default=MIN_EVENT_DELAY_S, ge=0)
    """Changes of the topology within this time are reported as one."""
    leader_prefix: str = Field(default="1", pattern=r"^[A-Za-z0-9]{1,20}$")
    """The instance with the lowest prefix is the next to lead; with voting it leads at once."""

    @property
    def topology(self) -> TopologySettings:
        """How this instance takes part. Raises `InvalidConfiguration`."""
        return TopologySettings(
            instance_id=self.instance_id,
            instance_id_file=self.id_file,
            store=self.topology_store,
            interval_s=self.topology_interval_s,
            timeout_s=self.topology_timeout_s,
            min_event_delay_s=self.min_event_delay_s,
            leader_prefix=self.leader_prefix,
        )

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        try:
            _ = self.topology
        except InvalidConfiguration as error:
            raise ValueError(str(error)) from None
        return self
