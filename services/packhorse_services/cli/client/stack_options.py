"""The options that say what an embedded stack is to be."""

from dataclasses import dataclass
from typing import Annotated

import typer

from packhorse.client.stack_folder import default_folder
from packhorse_services.cli.client.data_directory import DataDirectory
from packhorse_services.cli.client.settings import DataOption
from packhorse_services.cli.client.topic_options import TopicOptions

FirstPort = Annotated[
    int, typer.Option(min=0, max=65000, help="The first of the ports; 0 takes free ones.")
]
Subscribers = Annotated[int, typer.Option(min=0, max=100, help="How many.")]
StackJournal = Annotated[
    str,
    typer.Option("--journal", help="postgresql (the embedded server), postgresql://… or kafka://…"),
]
StackBlobs = Annotated[
    str | None,
    typer.Option("--blobs", help="A folder or s3://bucket.", show_default="DATA/blobs"),
]
MaxRetries = Annotated[
    int, typer.Option(min=-1, help="Attempts after the first; -1 never gives up.")
]
Editable = Annotated[bool, typer.Option(help="Let queues be cleared.")]


@dataclass(frozen=True, kw_only=True)
class StackOptions(TopicOptions):
    """What the user chose. `port` 0 takes any that are free."""

    data: DataOption = None
    port: FirstPort = 8080
    subscribers: Subscribers = 3
    journal: StackJournal = "postgresql"
    blobs: StackBlobs = None
    max_retries: MaxRetries = -1
    editable: Editable = True

    @property
    def directory(self) -> DataDirectory:
        """The folder that the stack lives in."""
        return DataDirectory(self.data or default_folder())
