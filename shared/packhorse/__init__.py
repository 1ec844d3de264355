"""packhorse: content distributed exactly once, in order, to many subscriber databases."""

__version__ = "0.1.0"
