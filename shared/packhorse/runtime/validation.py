"""Request bodies that are taken at their word, and what is said of those that are not."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from fastapi._compat import field_annotation_is_sequence
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Cookie, Header, Path
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from packhorse.runtime import audit
from packhorse.runtime.guards import checks_of
from packhorse.runtime.problems import Problem
from packhorse.runtime.reasons import reason_of
from packhorse.runtime.strict_json import json_of

MAX_VALUES = 20_000
"""Texts, numbers, members and elements in one body: each may be wrong and then costs time."""

_MAX_ERRORS = 50
_MAX_TEXT = 300


class StrictRoute(APIRoute):
    """A route that reads JSON by RFC 8259: no member twice, no NaN. `APIRouter(route_class=…)`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Take what `APIRoute` takes; the operation's id is always `operation_id`."""
        super().__init__(*arguments, **{**named, "generate_unique_id_function": audit.operation_id})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Check the caller before anything is read, and read JSON strictly."""
        handle = super().get_route_handler()
        checks = list(checks_of(self.dependant))

        async def handle_strictly(request: Request) -> Response:
            strict = _StrictRequest(request.scope, request.receive)
            for check in checks:
                await check(strict)
            return await handle(strict)

        return handle_strictly

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match HEAD, too, where GET is served: its answer is GET's without the body (RFC 9110)."""
        match, child_scope = super().matches(scope)
        if match is Match.PARTIAL and self._is_head_of_get(scope):
            match = Match.FULL
        return match, child_scope

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that matched."""
        answer = self.app if self._is_head_of_get(scope) else super().handle
        await answer(scope, receive, send)

    def _is_head_of_get(self, scope: Scope) -> bool:
        return scope["method"] == "HEAD" and "GET" in (self.methods or ())


def refuse_unknown_query(request: Request) -> None:
    """Refuse query parameters that the route does not have, or takes once, and they come twice.

    A misspelt filter filters nothing. Raises `Problem` 422. To be called once the caller is known
    to be allowed in.
    """
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, StrictRoute):
        return
    fields = get_flat_params(route.dependant)
    elsewhere = (Path, Header, Cookie)  # the rest is in the query; a model's fields don't say so
    known = {
        field.alias: field.field_info.annotation
        for field in fields
        if not isinstance(field.field_info, elsewhere)
    }
    given = Counter(name for name, _ in request.query_params.multi_items())
    errors = [
        {"pointer": f"query/{name[:_MAX_TEXT]}", "detail": detail}
        for name, count in list(given.items())[:_MAX_ERRORS]
        if (detail := _fault(name, count, known))
    ]
    if errors:
        raise Problem(422, detail="the query has wrong parameters; see errors", errors=errors)


def _fault(name: str, count: int, known: Mapping[str, Any]) -> str:
    """Return what is wrong with a parameter; `known` holds the types of those that there are."""
    if name not in known:
        return f"unknown; known are {', '.join(sorted(known))}"
    if count == 1 or field_annotation_is_sequence(known[name]):
        return ""
    return f"given {count} times; only one is taken"


class _StrictRequest(Request):
    async def body(self) -> bytes:
        """Return the body; an empty one is not taken for none where a body was announced.

        A route whose body may be left out does the most without one.
        """
        body = await super().body()
        if not body and (header := _announcing(self.headers)):
            lost = f"the header {header} announces a body, and none came"
            wrong = {"pointer": "#", "detail": f"{lost}; send the body, or leave the header out"}
            raise Problem(422, detail=f"{lost}; see errors", errors=[wrong])
        return body

    async def json(self) -> Any:
        body = await self.body()
        try:
            return json_of(body.decode())
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise Problem(400, detail=f"the body is no JSON: {reason[:_MAX_TEXT]}") from None


def _announcing(headers: Mapping[str, str]) -> str:
    """Return the header that says that there is a body, or nothing."""
    if "transfer-encoding" in headers:
        return "Transfer-Encoding"
    return "Content-Type" if "json" in headers.get("content-type", "") else ""


class StrictBody(BaseModel):
    """A request body: no unknown member, no coercion, no text that a database can't hold.

    FastAPI hands over parsed JSON, so declare lists, not tuples, and `Literal`, not enums.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_early(cls, value: Any) -> Any:
        check_json(value)
        return value


def check_json(value: Any) -> None:
    """Raise ValueError for a NUL or a lone surrogate in any text, and for too many values."""
    for found in _values(value):
        if isinstance(found, str):
            _check_one(found)


def check_amount(value: Any) -> None:
    """Raise ValueError for too many values: of a body whose parts are checked by themselves."""
    for _ in _values(value):
        pass


def _values(value: Any) -> Iterator[Any]:
    waiting, seen = [value], 0
    while waiting:
        found = waiting.pop()
        seen += 1
        if seen + len(waiting) > MAX_VALUES:
            raise ValueError(f"the body has more than {MAX_VALUES} values; send several requests")
        yield found
        if isinstance(found, Mapping):
            waiting.extend(found.keys())
            waiting.extend(found.values())
        elif isinstance(found, list | tuple):
            waiting.extend(found)


def _check_one(text: str) -> None:
    if "\x00" in text:
        raise ValueError("a text holds the character U+0000; leave it out")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair; send valid Unicode") from None


def problem_of_validation(error: RequestValidationError) -> Problem:
    """Return 400 for what is no JSON, 415 for another media type, 422 for the rest."""
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        where = found[0]["loc"][-1]
        return Problem(400, detail=f"the body is no JSON; it breaks at character {where}")
    if isinstance(error.body, bytes):
        return Problem(415, detail="send the body as application/json")
    return problem_of_errors(found)


def problem_of_errors(found: Sequence[Mapping[str, Any]]) -> Problem:
    """Return 422 with what a validation has found."""
    errors = [
        {"pointer": _pointer(one["loc"]), "detail": reason_of(str(one["msg"]))}
        for one in found[:_MAX_ERRORS]
    ]
    things = "1 thing is" if len(found) == 1 else f"{len(found)} things are"
    return Problem(422, detail=f"{things} wrong; see errors", errors=errors)


def _pointer(location: tuple[str | int, ...]) -> str:
    """Body members as a JSON pointer (`#/paths/0`), parameters as `query/limit`."""
    source, *steps = [str(step) for step in location]
    escaped = [step.replace("~", "~0").replace("/", "~1")[:_MAX_TEXT] for step in steps]
    return "/".join(["#" if source == "body" else source, *escaped])
