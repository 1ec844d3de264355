"""The token file: opaque bearer tokens with their scopes, kept from other users of the machine."""

import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from packhorse.errors import Transient
from packhorse.runtime.configuration import InvalidConfiguration
from packhorse.runtime.outage import Outage
from packhorse.runtime.principal import Principal, TokenScope, is_root
from packhorse.runtime.reasons import reason_of

logger = logging.getLogger(__name__)

_MAX_FILE_BYTES = 1024 * 1024


class TokensUnreadable(Transient):
    """The token file can't be read now, so nobody can be let in; mend it and try again."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    token: str | None = Field(default=None, min_length=20)
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    scopes: frozenset[TokenScope]
    roots: tuple[str, ...] = ("/",)
    agents: tuple[str, ...] | None = None

    @field_validator("roots")
    @classmethod
    def _check_roots(cls, roots: tuple[str, ...]) -> tuple[str, ...]:
        for root in roots:
            if not is_root(root):
                raise ValueError(f"{root[:80]!r} is no root; write / or a path such as /site")
        return roots

    def principal(self) -> Principal:
        return Principal(self.name, frozenset(self.scopes), self.roots, self.agents)

    def digest(self) -> str:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError(f"token {self.name!r} needs either token or sha256")
        return self.sha256 or _digest(self.token or "")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: list[_Entry] = Field(max_length=10_000)


@dataclass(frozen=True, slots=True)
class _Loaded:
    stamp: tuple[int, ...]
    principals: tuple[tuple[bytes, Principal], ...]


class TokenFile:
    """The tokens of a file, read again whenever it changes, so that they can be rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outage = Outage(
            logger,
            "every token is refused, for the token file can't be read",
            "the token file can be read again",
        )
        try:
            self._loaded = _load(path)
        except (OSError, ValueError) as error:
            raise InvalidConfiguration(f"token file {path}: {error}") from error

    async def principal(self, token: str) -> Principal | None:
        """Return whose token it is. Raises `TokensUnreadable`: a broken file lets nobody in."""
        presented = _digest(token).encode()
        found = None
        for digest, principal in self.current():
            if hmac.compare_digest(digest, presented):
                found = principal
        return found

    def current(self) -> tuple[tuple[bytes, Principal], ...]:
        """Return the digests of the tokens, and whose they are. Raises `TokensUnreadable`."""
        try:
            if _stamp(self._path.stat()) != self._loaded.stamp:
                self._loaded = _load(self._path)
                logger.info("tokens were read again", extra={"count": len(self._loaded.principals)})
        except (OSError, ValueError) as error:
            self._outage.failed(error)
            raise TokensUnreadable(
                "the server can't read its token file; try again later"
            ) from error
        self._outage.ended()
        return self._loaded.principals


def ensure_token_file(path: Path) -> str | None:
    """Create the file with one random admin token, and return that token; None if it exists.

    Of several programs that start at once, one creates it and the others find it.
    """
    if path.exists():
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    token = "ph_" + secrets.token_urlsafe(32)
    content = {"tokens": [{"name": "admin", "token": token, "scopes": ["admin"], "roots": ["/"]}]}
    handle, draft = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return None
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(draft).unlink()
    return token


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
    )


def _load(path: Path) -> _Loaded:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        _check_privacy(status)
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"more than {_MAX_FILE_BYTES} bytes")
    try:
        entries = _File.model_validate_json(content).tokens
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False, include_context=False)[:3]
        reported = [
            f"{'.'.join(map(str, one['loc']))}: {reason_of(str(one['msg']))}" for one in wrong
        ]
        raise ValueError(f"it is no list of tokens: {'; '.join(reported)}") from None
    principals = tuple((entry.digest().encode(), entry.principal()) for entry in entries)
    return _Loaded(_stamp(status), principals)


def _check_privacy(status: os.stat_result) -> None:
    mine = status.st_uid == os.geteuid()
    if not mine and status.st_uid != 0:
        raise ValueError("another user owns it; only you or root may")
    # A secret that an orchestrator mounts is root's, and its group is the only way to read it.
    forbidden = 0o077 if mine else 0o037
    if stat.S_IMODE(status.st_mode) & forbidden:
        raise ValueError("other users can read or write it; chmod 600 it, and change its tokens")
