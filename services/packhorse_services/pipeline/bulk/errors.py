"""How a bulk distribution ends other than done."""

from packhorse.errors import Permanent, Transient
from packhorse_services.pipeline.errors import Conflict, NotThere


class BulkStopped(Transient):
    """Somebody has interrupted it; the text says how far it came."""


class BulkConflict(Conflict):
    """Another bulk distribution has the id, or it is at work somewhere else, or cancelled."""


class BulkCancelled(BulkConflict):
    """Somebody has cancelled it; the text says how far it came."""


class BulkUnknown(NotThere):
    """There is no bulk distribution of that id."""


class PublisherRefused(Permanent):
    """The publisher will not take what it is sent; the text is its own."""


class PublisherAway(Transient):
    """The publisher gave no answer for long; running it again goes on where it was."""


class PartBusy(Transient):
    """A part of the subtree is written so often that no export of it was the newest."""
