"""The two kinds of failure that every caller has to distinguish."""


class PackhorseError(Exception):
    """Root of every error that packhorse raises on purpose; the text says what to do."""


class Transient(PackhorseError):
    """The same call may succeed later, unchanged."""


class Permanent(PackhorseError):
    """The same call will fail again until somebody changes the input or the system."""
