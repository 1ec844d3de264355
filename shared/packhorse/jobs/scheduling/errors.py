"""What can be wrong with a schedule, or with what is asked of one."""

from packhorse.errors import Permanent, Transient


class InvalidSchedule(Permanent):
    """A schedule that packhorse does not take; the text names what is wrong, and what is right."""


class ScheduleExists(Permanent):
    """There is a schedule of that name; change it, or choose another name."""


class UnknownSchedule(Permanent):
    """There is no schedule of that name."""


class InstancesUnknown(Transient):
    """Which instances are alive is not known at the moment; try again."""


class ScheduleChanged(Transient):
    """The schedule is of another version than the caller has seen; look again."""
