"""Messages of hooks, and what an operator may say of one (ADR 0101)."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from pydantic import SecretStr, ValidationError

from packhorse.jobs.content_changes.change import ChangeKind
from packhorse_services.jobs.hooks.delivery import wait_of
from packhorse_services.jobs.hooks.hook import Hook, key_of
from packhorse_services.jobs.hooks.message import body_of, headers_of, id_of
from tests.harness.jobs.made import HOOK_SECRET as SECRET
from tests.harness.jobs.made import hook_job
from tests.harness.yaml_text import parsed

OTHER = "whsec_" + "b3RoZXIgb25l" * 3


def test_the_signature_is_that_of_the_standard() -> None:
    keys = [key_of(SecretStr(SECRET)), key_of(SecretStr(OTHER))]
    body = b'{"test": 2432232314}'
    headers = headers_of("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, keys)
    own, other = headers["webhook-signature"].split(" ")
    assert own == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert other.startswith("v1,")
    assert (headers["webhook-timestamp"], other == own) == ("1614265330", False)


def test_a_message_is_the_same_for_each_attempt_and_no_other_jobs() -> None:
    first = hook_job()
    assert (id_of(first), body_of(first)) == (id_of(hook_job()), body_of(hook_job()))
    others = [hook_job(2), hook_job(subscriber="sub2")]
    assert len({id_of(one) for one in (first, *others)}) == 3
    message = json.loads(body_of(first))
    assert (message["type"], message["timestamp"]) == ("content.added", "2026-01-01T12:00:00+00:00")
    assert message["data"] == {"subscriber": "sub1", "paths": ["/a"], "deep_paths": []}


def test_how_long_a_receiver_may_let_us_wait() -> None:
    asked = ["5", "99999", "9" * 5000, "-1", "x", "Wed, 21 Oct 2026 07:28:00 GMT"]
    waits = [wait_of({"retry-after": one}) for one in asked]
    assert waits == [timedelta(seconds=5), timedelta(hours=1), *[None] * 4]
    assert wait_of({}) is None


@pytest.mark.parametrize(
    ("until", "now", "wait"),
    [
        ("2026 07:28:00 GMT", "2026 07:27:50 GMT", timedelta(seconds=10)),
        ("2026 07:28:00 GMT", "2026 07:28:50 GMT", timedelta(0)),
        ("2027 07:28:00 GMT", "2026 07:28:00 GMT", timedelta(hours=1)),
        ("2026 07:28:00 GMT", "2026 07:27:50 -0000", None),
        ("9" * 30 + " 07:28:00 GMT", "2026 07:28:00 GMT", None),
    ],
)
def test_a_receiver_may_name_a_moment(until: str, now: str, wait: timedelta | None) -> None:
    day = "Wed, 21 Oct "
    assert wait_of({"retry-after": day + until, "date": day + now}) == wait


def test_messages_are_what_the_document_says() -> None:
    path = Path(__file__).parents[3] / "asyncapi" / "events.yaml"
    document = parsed(path.read_text())
    told = document["components"]["messages"]["ContentChanged"]
    for kind in ChangeKind:
        source = {"package_id": "p", "publisher_agent": "main", "user": "anna"}
        one = hook_job(change=str(kind), **source)
        body = body_of(one)
        headers = headers_of(id_of(one), 1, body, [b"a" * 24, b"b" * 24])
        for part, value in (("headers", headers), ("payload", json.loads(body))):
            schema = {**told[part], "components": document["components"]}
            Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://cdn"},
        {"url": "/purge"},
        {"url": "https://"},
        {"url": "https://us:hidden@cdn"},
        {"url": "http://cdn:hidden"},
        {"secrets": []},
        {"secrets": ["hidden"]},
        {"secrets": ["whsec_hidden!"]},
        {"secrets": [SECRET[:20]]},
        {"secrets": [OTHER + "A"]},
        {"paths": ["a"]},
        {"paths": []},
        {"timeout_s": 0},
        {"header": "hidden"},
    ],
)
def test_what_is_wrong_is_refused_without_a_secret(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refused:
        Hook.model_validate({"url": "https://cdn", "secrets": [SECRET], **wrong})
    assert "hidden" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_hook_does_not_show_its_secrets_nor_its_address() -> None:
    hook = Hook.model_validate({"url": "https://cdn/hidden", "secrets": [SECRET]})
    assert hook.paths == ("/",)
    assert "hidden" not in repr(hook)
    assert SECRET not in repr(hook)
