"""The end of a process, played within the test's own."""


class Crash(BaseException):
    """The process is dead from here on, as if by SIGKILL: nobody may handle it."""
