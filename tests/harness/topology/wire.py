"""The way from a simulated process to its store: it takes time, and loses requests and answers.

A request that was given up may still arrive later, and then it is done.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from packhorse.topology.membership import StoreUnavailable
from tests.harness.topology.world import World

REQUEST_TIMEOUT_S = 3.0
Answer = Callable[[Callable[[], Any]], None]
"""Takes what gives the value or raises; the first answer counts."""
LOCAL_STEPS = {"wait", "wake", "close"}


@dataclass(frozen=True)
class Conditions:
    """What the network between one process and the store is like at one moment."""

    request_s: float = 0.002
    answer_s: float = 0.002
    jitter_s: float = 0.004
    cut: bool = False
    """No request arrives."""
    deaf: bool = False
    """Requests arrive, answers don't."""


class Network:
    """The conditions of each instance; a process started again has those of its machine."""

    def __init__(self) -> None:
        self._conditions: dict[str, Conditions] = {}

    def of(self, machine: str) -> Conditions:
        return self._conditions.get(machine, Conditions())

    def change(self, machine: str, **changes: Any) -> None:
        self._conditions[machine] = replace(self.of(machine), **changes)

    def clear(self, machine: str) -> None:
        self._conditions.pop(machine, None)

    def heal(self) -> None:
        self._conditions.clear()


class Sleeper(Protocol):
    """A process that can wait for an answer."""

    machine: str

    def await_answer(self, begin: Callable[[Answer], None]) -> Any: ...


class Wire:
    """A store as a process reaches it: every step of its protocol goes through the network."""

    def __init__(self, store: Any, process: Sleeper, network: Network, world: World) -> None:
        self._store, self._process = store, process
        self._network, self._world = network, world

    def __getattr__(self, step: str) -> Callable[..., Any]:
        call = getattr(self._store, step)
        if step in LOCAL_STEPS:
            return call  # type: ignore[no-any-return]
        return lambda *args, **named: self._requested(lambda: call(*args, **named))

    def _requested(self, act: Callable[[], Any]) -> Any:
        return self._process.await_answer(lambda answer: self._send(act, answer))

    def _send(self, act: Callable[[], Any], answer: Answer) -> None:
        seen, until = self._network.of(self._process.machine), self._world.now + REQUEST_TIMEOUT_S
        takes = seen.request_s + self._world.random.random() * seen.jitter_s
        self._world.after(takes, lambda: self._arrive(act, answer, until))
        if takes > REQUEST_TIMEOUT_S:
            self._world.at(until, lambda: answer(_unavailable))

    def _arrive(self, act: Callable[[], Any], answer: Answer, until: float) -> None:
        seen = self._network.of(self._process.machine)
        outcome = _unavailable if seen.cut else _outcome(act)
        back = self._world.now + seen.answer_s + self._world.random.random() * seen.jitter_s
        if seen.cut or seen.deaf or back > until:
            self._world.at(until, lambda: answer(_unavailable))
        else:
            self._world.at(back, lambda: answer(outcome))


def _outcome(act: Callable[[], Any]) -> Callable[[], Any]:
    try:
        value = act()
    except StoreUnavailable:
        return _unavailable
    return lambda: value


def _unavailable() -> Any:
    raise StoreUnavailable("no answer came in time")
