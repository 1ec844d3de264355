"""The token file: private, strict, rotated while the program runs; scopes decide."""

import asyncio
import hashlib
import json
import logging
import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from packhorse.runtime import token_file
from packhorse.runtime.auth import Authenticator, TokenScope, authenticator_for, ensure_token_file
from packhorse.runtime.configuration import InvalidConfiguration, ProcessConfiguration
from packhorse.runtime.token_file import TokenFile, TokensUnreadable
from tests.unit.runtime.apps import call, sample_app, send_json

READER = "reader-token-0123456789"


def _write(path: Path, *entries: dict[str, Any], mode: int = 0o600) -> Path:
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps({"tokens": entries}))
    fresh.chmod(mode)
    fresh.replace(path)
    return path


def _reader(**members: Any) -> dict[str, Any]:
    return {"name": "reader", "token": READER, "scopes": ["queues:read"], **members}


def _get(path: Path, header: str | None) -> Any:
    app = sample_app(Authenticator(TokenFile(path)))
    headers = {"authorization": header} if header is not None else {}
    return call(app, "GET", "/orders", headers=headers)


def test_a_created_file_is_private_and_its_token_is_admin(tmp_path: Path) -> None:
    path = tmp_path / "packhorse" / "secrets" / "tokens.json"
    token = ensure_token_file(path)
    assert token is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]
    assert _get(path, f"Bearer {token}").json() == ["/"]
    assert ensure_token_file(path) is None


def test_a_file_that_is_there_needs_no_folder_to_write_to() -> None:
    """An orchestrator mounts secrets read-only."""
    assert ensure_token_file(Path("/proc/self/status")) is None


def test_of_many_programs_that_start_at_once_one_creates_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    created: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: created.append(ensure_token_file(path))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [token] = [found for found in created if found is not None]
    assert _get(path, f"Bearer {token}").status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong-token-0123456789",
        f"Basic {READER}",
        READER,
        f"Bearer {READER} ",
        f"Bearer {READER}x",
        "Bearer " + "x" * 20_000,
        f"Bearer {hashlib.sha256(READER.encode()).hexdigest()}",
    ],
)
def test_without_a_valid_token_it_is_401_with_a_challenge(
    tmp_path: Path, header: str | None
) -> None:
    answer = _get(_write(tmp_path / "t", _reader()), header)
    if header == f"Bearer {READER} ":  # white space around a header's value means nothing
        assert answer.status_code == 200
    else:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith('Bearer realm="packhorse"')


def test_a_missing_scope_is_403_and_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "t", _reader())
    app = sample_app(Authenticator(TokenFile(path)))
    headers = {"authorization": f"Bearer {READER}"}
    body = {"action": "ADD", "paths": []}
    answer = call(app, "POST", "/orders", json=body, headers=headers)
    assert answer.status_code == 403
    assert 'scope="distribute"' in answer.headers["www-authenticate"]
    assert "distribute" in answer.json()["detail"]


@pytest.mark.parametrize("scope", list(TokenScope))
def test_each_scope_opens_its_own_doors_and_admin_all(tmp_path: Path, scope: TokenScope) -> None:
    path = _write(tmp_path / "t", _reader(scopes=[scope]))
    expected = 200 if scope in (TokenScope.QUEUES_READ, TokenScope.ADMIN) else 403
    assert _get(path, f"Bearer {READER}").status_code == expected


def test_metrics_need_a_token_and_probes_do_not(tmp_path: Path) -> None:
    app = sample_app(Authenticator(TokenFile(_write(tmp_path / "t", _reader()))))
    assert call(app, "GET", "/metrics").status_code == 401
    headers = {"authorization": f"Bearer {READER}"}
    assert call(app, "GET", "/metrics", headers=headers).status_code == 200
    for path in ("/", "/livez", "/readyz", "/startupz", "/openapi.json", "/problems/not-found"):
        assert call(app, "GET", path).status_code == 200


def test_the_body_of_a_stranger_is_not_judged(tmp_path: Path) -> None:
    app = sample_app(Authenticator(TokenFile(_write(tmp_path / "t", _reader()))))
    assert send_json(app, b'{"action":"ADD","paths":[]}').status_code == 401


def test_a_digest_serves_instead_of_the_token(tmp_path: Path) -> None:
    digest = hashlib.sha256(READER.encode()).hexdigest()
    entry = {"name": "r", "sha256": digest, "scopes": ["queues:read"], "roots": ["/a"]}
    assert _get(_write(tmp_path / "t", entry), f"Bearer {READER}").json() == ["/a"]


@pytest.mark.parametrize(
    ("agents", "agent", "status"),
    [
        (None, "main", 200),
        (["main"], "main", 200),
        (["bulk"], "main", 403),
        ([], "main", 403),
        (["bulk"], None, 200),
    ],
)
def test_a_token_for_other_agents_is_refused_by_an_agent(
    tmp_path: Path, agents: list[str] | None, agent: str | None, status: int
) -> None:
    file = TokenFile(_write(tmp_path / "t", {**_reader(), "agents": agents}))
    app = sample_app(Authenticator(file), agent=agent)
    found = call(app, "GET", "/orders", headers={"Authorization": f"Bearer {READER}"})
    assert found.status_code == status


@pytest.mark.parametrize("root", ["", "site", "site/x", "/site/", "//", "/site/../x", " "])
def test_a_file_whose_roots_are_no_paths_is_refused(tmp_path: Path, root: str) -> None:
    with pytest.raises(
        InvalidConfiguration, match=r"tokens\.0\.roots: '.*' is no root; write / or"
    ):
        TokenFile(_write(tmp_path / "t", _reader(roots=["/a", root])))


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o602, 0o610, 0o644])
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = _write(tmp_path / "t", _reader(), mode=mode)
    with pytest.raises(InvalidConfiguration, match="chmod 600"):
        TokenFile(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"tokens":[{"name":"a","scopes":["admin"]}]}',
        '{"tokens":[{"name":"a","token":"short","scopes":["admin"]}]}',
        '{"tokens":[{"name":"a","sha256":"abc","scopes":["admin"]}]}',
        json.dumps({"tokens": [_reader(scopes=["root"])]}),
        json.dumps({"tokens": [_reader(extra=1)]}),
        json.dumps({"tokens": [_reader(sha256="a" * 64)]}),
        '{"tokens":[' + " " * 1024 * 1024 + "]}",
    ],
)
def test_a_wrong_file_is_refused_at_start_and_not_quoted(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t"
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(InvalidConfiguration) as refusal:
        TokenFile(path)
    for phrase in (READER, "Input should", "Value error", "'loc'"):
        assert phrase not in str(refusal.value)


def test_a_file_that_can_t_be_read_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="No such file"):
        TokenFile(tmp_path / "t")


def test_tokens_are_rotated_while_the_program_runs(tmp_path: Path) -> None:
    path = _write(tmp_path / "t", _reader())
    tokens = TokenFile(path)
    assert tokens.current() is tokens.current(), "a file that has not changed is not read again"
    assert asyncio.run(tokens.principal(READER)) is not None
    _write(path, _reader(token="another-token-0123456789"))
    assert asyncio.run(tokens.principal(READER)) is None
    assert asyncio.run(tokens.principal("another-token-0123456789")) is not None


@pytest.mark.parametrize("harm", ["remove", "open", "garble"])
def test_a_file_that_breaks_lets_nobody_in_until_it_is_mended(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, token_file.__name__)
    path = _write(tmp_path / "t", _reader())
    tokens = TokenFile(path)
    app = sample_app(Authenticator(tokens))
    if harm == "remove":
        path.unlink()
    elif harm == "open":
        path.chmod(0o644)
    else:
        path.write_text("{")
    with pytest.raises(TokensUnreadable):
        asyncio.run(tokens.principal(READER))
    headers = {"authorization": f"Bearer {READER}"}
    assert call(app, "GET", "/orders", headers=headers).status_code == 503
    ready = call(app, "GET", "/readyz?verbose")
    assert ready.status_code == 200
    # The other one is what a machine that stands still for a moment says.
    assert ready.json()["warnings"]["tokens"] in ("TokensUnreadable", "no answer in time")
    _write(path, _reader())
    assert call(app, "GET", "/orders", headers=headers).status_code == 200
    begun, read, over = (one for one in caplog.records if one.name == token_file.__name__)
    assert begun.message.startswith("every token is refused, for the token file can't be read: ")
    assert begun.exc_info is None, "anybody can have it written"
    assert read.message == "tokens were read again"
    assert over.message.startswith("the token file can be read again, after ")


@pytest.mark.parametrize(
    ("owner", "mode", "taken"),
    [(0, 0o440, True), (0, 0o400, True), (0, 0o444, False), (0, 0o460, False), (7, 0o400, False)],
)
def test_a_mounted_secret_of_root_may_be_read_by_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, taken: bool
) -> None:
    path = _write(tmp_path / "t", _reader(), mode=mode)
    fstat = os.fstat

    def owned(handle: int) -> os.stat_result:
        found = list(fstat(handle))
        found[4] = owner
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", owned)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    refusal = nullcontext() if taken else pytest.raises(InvalidConfiguration)
    with refusal:
        TokenFile(path)


def test_the_new_token_is_shown_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    configuration = ProcessConfiguration(port=0, token_file=tmp_path / "t")
    authenticator_for(configuration)
    shown = capfd.readouterr().err
    assert json.loads((tmp_path / "t").read_text())["tokens"][0]["token"] in shown
    authenticator_for(configuration)
    assert capfd.readouterr().err == ""


def test_authentication_without_a_way_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="PACKHORSE_TOKEN_FILE"):
        authenticator_for(ProcessConfiguration(port=0))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_an_open_service_listens_on_loopback_only(host: str) -> None:
    with pytest.raises(ValueError, match="not loopback"):
        ProcessConfiguration(host=host, port=0, authentication=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_an_open_service_on_loopback_takes_everybody_for_admin(host: str) -> None:
    configuration = ProcessConfiguration(host=host, port=0, authentication=False)
    app = sample_app(authenticator_for(configuration))
    assert call(app, "GET", "/orders").status_code == 200
