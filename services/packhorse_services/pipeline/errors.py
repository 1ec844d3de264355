"""What the pipeline's tasks fail with, beside the library's own errors."""

from packhorse.errors import Permanent, Transient


class JarsMissing(Permanent):
    """The jars that Spark needs are not there, and could not be fetched."""


class JavaUnusable(Permanent):
    """There is no Java that this Spark runs on."""


class TablesUnusable(Permanent):
    """The place of the tables can't be used as configured, or holds something else."""


class SchemaChanged(Permanent):
    """A table has other columns than this build writes."""


class CheckpointCorrupt(Permanent):
    """A streaming query's checkpoint can't be read, or belongs to another query."""


class HistoryGap(Permanent):
    """Records were removed from the journal before they were archived."""


class TaskRefused(Permanent):
    """A task can't do what it was asked for; the text says what to do instead."""


class NotThere(TaskRefused):
    """What a task was asked for is not there, or not yet."""


class Conflict(Permanent):
    """Somebody else's work is in the way of a task; the text says whose, or what to do."""


class Overtaken(TaskRefused):
    """Another run of a task has done what this one was about to do."""


class NotYet(Transient):
    """It is too early for what a task was asked for; later the same command does it."""


class TaskFailed(Transient):
    """Spark gave up a task; running it again goes on where it stopped."""
