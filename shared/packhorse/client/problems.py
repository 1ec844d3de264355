"""Problem documents (RFC 9457) as exceptions whose texts say what to do."""

import http
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packhorse.client.errors import Refused, refusal_class
from packhorse.client.exchange import Answer


def _unchanged(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Words:
    """What errors call the things that their reader can change."""

    address: str = "the URL"
    token: str = "token=…, PACKHORSE_TOKEN or PACKHORSE_TOKEN_FILE"  # noqa: S105
    not_sent: str = "That of a stack's folder goes to this stack's own servers only."
    shown: Callable[[str], str] = _unchanged
    """Puts what a service says of its routes into the reader's words."""


def refusal(answer: Answer, words: Words, *, with_token: bool) -> Refused | None:
    """Return what an answer refuses, or None when it does not."""
    if 200 <= answer.status < 300:
        return None
    try:
        problem = answer.document()
        lines = _lines_of(problem, answer.status, words)
    except Exception:  # whatever came in the place of a problem document
        problem, lines = {}, [f"{answer.url} answered {answer.status} {_phrase(answer.status)}"]
    return _made(
        lines,
        answer.status,
        problem,
        _advice(answer, problem, words, with_token=with_token),
        _seconds(answer.headers.get("retry-after", "")),
    )


def refused_outcome(outcome: Mapping[str, Any], words: Words) -> Refused | None:
    """Return why a request of a batch was refused, or None when it was not."""
    problem = outcome.get("problem")
    if problem is None:
        return None
    status, wait_s = int(outcome["status"]), outcome.get("retry_after")
    lines = _lines_of(problem, status, words)
    return _made(lines, status, problem, "", None if wait_s is None else float(wait_s))


def _made(
    lines: list[str],
    status: int,
    problem: Mapping[str, Any],
    advice: str,
    retry_after_s: float | None,
) -> Refused:
    kind = str(problem.get("type", "")).rpartition("/")[2]
    made = refusal_class(status, kind)
    return made("\n".join(lines), status, problem, advice=advice, retry_after_s=retry_after_s)


def _lines_of(problem: Mapping[str, Any], status: int, words: Words) -> list[str]:
    """Return what a problem document says; what its detail says is not said again."""
    detail = words.shown(str(problem.get("detail") or ""))
    errors = problem.get("errors", [])
    lines = [f"{problem['title']} ({status})"]
    if detail and not (errors and detail.endswith("; see errors")):
        lines.append(detail)
    reported = [
        (words.shown(str(wrong.get("pointer"))), words.shown(str(wrong.get("detail"))))
        for wrong in errors
    ]
    return lines + [f"{pointer}: {why}" for pointer, why in reported if why != detail]


def _advice(answer: Answer, problem: Mapping[str, Any], words: Words, *, with_token: bool) -> str:
    if answer.status == 401 and not with_token:
        return f"No token was sent; name one with {words.token}. {words.not_sent}"
    if answer.status in (401, 403):
        return f"Name a token that allows it with {words.token}."
    if problem and answer.status == 404 and not problem.get("detail"):  # there is no such route
        return f"Is {answer.url} the right service? {words.address} names another."
    if wait := answer.headers.get("retry-after"):
        return f"Try again in {wait} s."
    return ""


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
