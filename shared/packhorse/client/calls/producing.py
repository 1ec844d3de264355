"""A source that numbers what it sends: nothing goes out twice (R5, R27)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from packhorse.client.calls.distributing import Action
from packhorse.client.errors import Conflict, Misused, Refused
from packhorse.client.exchange import (
    AWAY,
    FULL,
    KEY_IN_PROGRESS,
    Answer,
    Document,
    Operation,
    Request,
    requested,
    segment,
)
from packhorse.client.problems import Words, refused_outcome

NOTHING_SENT = -1
_PASSED = "sequence-passed"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

T = TypeVar("T")


class Numbering:
    """A producer's name, and once it is registered its epoch and the last number that is out."""

    def __init__(self, name: str, words: Words, epoch: int = 0) -> None:
        """Raise `Misused` for what is no name."""
        if not _NAME.fullmatch(name):
            raise Misused(
                f"{name!r} is no name of a producer: that has up to 100 letters of ASCII, digits, "
                "dots, hyphens and underscores, and begins with a letter or a digit"
            )
        self.name, self._words = name, words
        self.epoch = epoch
        self.last_sequence = NOTHING_SENT

    @property
    def path(self) -> str:
        """The producer at the publisher."""
        return f"/producers/{segment(self.name)}"

    def register(self) -> Operation[int]:
        """Register, which fences whoever has done so before; return the last number that is out.

        It is `NOTHING_SENT` before the first.
        """
        found = yield from requested(Request("PUT", self.path, again=AWAY))
        self.epoch, self.last_sequence = found["epoch"], _last(found)
        return self.last_sequence

    def send(
        self, sequence: int, *paths: str, deep: Sequence[str] = (), action: Action = "ADD"
    ) -> Operation[Document]:
        """Publish a request under its number; return what was accepted, `repeated` if it was out.

        Numbers grow; one that was skipped can't come later. Raises `Fenced` when somebody else
        has registered the name since.
        """
        body = {"action": action, "paths": list(paths), "deep_paths": list(deep)}
        return (yield from self._numbered("/distribute", sequence, _without_empty(body)))

    def send_package(self, sequence: int, package: Mapping[str, Any]) -> Operation[Document]:
        """Publish a stored package (`POST /packages`) under its number, as `send` does."""
        return (yield from self._numbered("/packages", sequence, package))

    def send_batch(
        self, bodies: Mapping[int, Mapping[str, Any]]
    ) -> Operation[list[Refused | Document]]:
        """Publish up to 500 bodies by their numbers in one request.

        Returns for each, in their order, what was accepted or why it was refused; behind one that
        was refused nothing is taken. It is sent again while the first can't be taken now.
        """

        def first_is_away(answer: Answer) -> Refused | None:
            error = refused_outcome(answer.document()["outcomes"][0], self._words)
            return error if error is not None and is_transient(error) else None

        found = yield from requested(
            Request(
                "POST",
                "/distribute/batch",
                body={"requests": [self._with_number(*one) for one in bodies.items()]},
                repeatable=True,
                judge=first_is_away,
            )
        )
        return [refused_outcome(one, self._words) or one["accepted"] for one in found["outcomes"]]

    def pass_over(self, sequence: int) -> Operation[None]:
        """Count all numbers up to this one as dealt with, for good."""
        body = {"epoch": self.epoch, "last_sequence": sequence}
        headers = {"Content-Type": "application/merge-patch+json"}
        yield from requested(
            Request("PATCH", self.path, body=body, headers=headers, repeatable=True)
        )
        self.last_sequence = max(self.last_sequence, sequence)

    def _with_number(self, sequence: int, body: Mapping[str, Any]) -> dict[str, Any]:
        number = {"name": self.name, "epoch": self.epoch, "sequence": sequence}
        return {**body, "producer": number}

    def after_last(self, numbered: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """Leave out what is out already, of what begins with its number."""
        for sequence, what in numbered:
            if sequence > self.last_sequence:
                yield sequence, what

    def _numbered(self, path: str, sequence: int, body: Mapping[str, Any]) -> Operation[Document]:
        if not self.epoch:
            raise Misused(f"the producer {self.name!r} is not registered; use it with `with`")
        try:
            accepted: Document = yield from requested(
                Request("POST", path, body=self._with_number(sequence, body), repeatable=True)
            )
        except Conflict as error:
            if error.kind != _PASSED:
                raise
            accepted = Document(repeated=True)
        self.last_sequence = max(self.last_sequence, sequence)
        return accepted


def last_sequence(name: str) -> Operation[int]:
    """Return how far a producer of this token has come, without registering it.

    Raises `NotFound` when the publisher knows none of that name.
    """
    found = yield from requested(Request("GET", f"/producers/{segment(name)}"))
    return _last(found)


def is_transient(error: Refused) -> bool:
    """Return whether the same request may be taken later."""
    return error.status in AWAY | {FULL} or error.kind == KEY_IN_PROGRESS


def _last(document: Mapping[str, Any]) -> int:
    last = document["last_sequence"]
    return NOTHING_SENT if last is None else int(last)


def _without_empty(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value}


class NumberedSource:
    """What a producer knows of its numbers, however it sends them."""

    def __init__(self, numbering: Numbering) -> None:
        self.numbering = numbering

    @property
    def epoch(self) -> int:
        """Of the registration; a later one fences it."""
        return self.numbering.epoch

    @property
    def last_sequence(self) -> int:
        """The last number that is out, as far as is known; -1 before the first."""
        return self.numbering.last_sequence

    def after_last(self, numbered: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        """Leave out what is out already, of pairs that begin with a number."""
        return self.numbering.after_last(numbered)
