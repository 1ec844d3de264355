"""Long-lived parts of a process: started in order, stopped in reverse, watched in between."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Protocol, Self, runtime_checkable

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 20.0
"""How long all components of a program may take to stop."""
_LEAST_S = 1.0
"""How long each of several may take, whatever those before it took: it has a last word too."""


class Component(Protocol):
    """A part of a process that works beside the HTTP service."""

    def start(self) -> None:
        """Begin; returns once the part works, or raises."""
        ...

    def stop(self, timeout: float) -> None:
        """End within about `timeout` seconds; stopping twice is a success."""
        ...


@runtime_checkable
class Watched(Protocol):
    """A component that can die by itself."""

    def failure(self) -> BaseException | None:
        """Return what it died of, or None while it is well."""
        ...


def stop_all(components: Iterable[Component], timeout: float) -> None:
    """Stop one after the other, within about `timeout` seconds for all of them.

    One that fails is logged, and the others are stopped.
    """
    until = monotonic() + timeout
    for component in components:
        try:
            component.stop(max(_LEAST_S, until - monotonic()))
        except Exception:
            logger.exception("stopping failed", extra={"component": type(component).__name__})


class Worker:
    """A component that runs `work` in a thread; `work` ends soon after its event is set.

    `wake` lets it notice the event where it waits for something else. An exception that leaves
    `work` is the worker's death; so is an end before the event is set, unless it `may_end`.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[threading.Event], None],
        *,
        wake: Callable[[], object] | None = None,
        may_end: bool = False,
    ) -> None:
        self.name = name
        self._work, self._wake, self._may_end = work, wake, may_end
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Set the event and return at once."""
        self._stopping.set()
        if self._wake is not None:
            self._wake()

    def stop(self, timeout: float) -> None:
        """Set the event and wait for the thread."""
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def failure(self) -> BaseException | None:
        """Return what ended the work, unless it was asked to end."""
        return self._failure

    def _run(self) -> None:
        try:
            self._work(self._stopping)
        except BaseException as error:
            logger.exception("a worker died", extra={"worker": self.name})
            self._failure = error
        else:
            if not (self._may_end or self._stopping.is_set()):
                self._failure = RuntimeError(f"{self.name} ended by itself")


class WorkerComponent:
    """A component whose start, end and death are those of one worker, which its class makes."""

    _worker: Worker

    def start(self) -> None:
        """Start the thread; returns at once, whatever the work waits for."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """End the thread; what is under way is waited for up to `timeout` seconds."""
        self._worker.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what the thread died of, or None while it is well."""
        return self._worker.failure()


class Lifecycle:
    """Keeps components running inside a `with`; a start that fails stops what started."""

    def __init__(self, components: Sequence[Component]) -> None:
        self._components = components
        self._started: list[Component] = []
        self._watched: list[Watched] = []

    def __enter__(self) -> Self:
        """Start the components in order."""
        try:
            for component in self._components:
                component.start()
                self._started.append(component)
                if isinstance(component, Watched):
                    self._watched.append(component)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop them in reverse."""
        self._stop()

    def check(self) -> None:
        """Raise the failure of the first component that has died."""
        for component in self._watched:
            failure = component.failure()
            if failure is not None:
                raise RuntimeError(f"{type(component).__name__} has died") from failure

    def _stop(self) -> None:
        self._watched.clear()
        stop_all(reversed(self._started), STOP_TIMEOUT_S)
        self._started.clear()
