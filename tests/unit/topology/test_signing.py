"""Signed requests: what is believed, and that nothing else is."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packhorse.topology.connector_keys import KEY_TTL_S, MAX_SKEW_S, KeyId, SharedKeys
from packhorse.topology.rejection import Rejected, RejectionReason
from packhorse.topology.signing import (
    LIFETIME_S,
    Response,
    SignedRequest,
    check_times,
    fields,
    sign,
    verify,
)
from tests.harness.topology.forgeries import KEYS, OTHER_KEYS, Case, Sent, forgeries, sent

NOW = 1_800_000_000.5
BODY = b'{"protocol_version":1}'
PLAIN = SignedRequest(
    "PUT", "peer.example:8087", "/topology/connectors/a-1", {"content-type": "application/json"}
)
VALID = sent(PLAIN, BODY, NOW)
REQUEST = replace(PLAIN, headers=fields(VALID.headers))


def reason_of(one: Sent, now: float = NOW) -> RejectionReason:
    with pytest.raises(Rejected) as refusal:
        one.believed(now)
    return refusal.value.reason


def test_what_was_signed_is_believed() -> None:
    VALID.believed(NOW)


@pytest.mark.parametrize("case", forgeries(VALID), ids=lambda case: case[0])
def test_nothing_else_is(case: Case) -> None:
    _, forged, reason = case
    assert reason_of(forged) is reason


def test_another_method_key_or_instance_is_refused() -> None:
    assert reason_of(replace(VALID, method="DELETE")) is RejectionReason.SIGNATURE
    assert reason_of(sent(PLAIN, BODY, NOW, OTHER_KEYS)) is RejectionReason.SIGNATURE
    of_another = VALID.with_header("signature-input", lambda value: value.replace("a-1", "a-2"))
    assert reason_of(of_another) is RejectionReason.SIGNATURE


def test_a_signature_has_its_time() -> None:
    assert reason_of(VALID, NOW + LIFETIME_S + MAX_SKEW_S + 1) is RejectionReason.EXPIRED
    assert reason_of(VALID, NOW - MAX_SKEW_S - 2) is RejectionReason.FUTURE
    VALID.believed(NOW - MAX_SKEW_S + 1)
    VALID.believed(NOW + LIFETIME_S + MAX_SKEW_S - 1)


def test_an_old_key_is_refused_after_two_times_to_live() -> None:
    first = KEYS.key_id(NOW, "a-1")
    begins = first.number * KEY_TTL_S
    assert KEYS.accepts(first, begins)
    assert KEYS.accepts(first, begins + 2 * KEY_TTL_S - 1)
    assert not KEYS.accepts(first, begins + 2 * KEY_TTL_S)
    assert KEYS.accepts(first, begins - MAX_SKEW_S)
    assert not KEYS.accepts(first, begins - MAX_SKEW_S - 1)
    old = KeyId(first.number - 2, "a-1")
    assert reason_of(sent(PLAIN, BODY, NOW, key=old)) is RejectionReason.KEY


def test_a_signature_that_would_hold_for_hours_is_refused() -> None:
    signed = verify(REQUEST, BODY, KEYS)
    for expires in (signed.created + LIFETIME_S + 1, signed.created, signed.created - 1):
        with pytest.raises(Rejected):
            check_times(replace(signed, expires=expires), KEYS, NOW)


def place_of(text: str) -> tuple[int, float]:
    """Return where the header that holds a text is among what is sent, and the text's end in it."""
    [(part, value)] = [one for one in enumerate(dict(VALID.headers).values(), 4) if text in one[1]]
    return part, (value.index(text) + len(text) + 0.5) / len(value)


@example(*place_of(";created="), 0, "0")
@example(*place_of(";expires="), 0, "0")
@given(
    st.sampled_from(range(4 + len(VALID.headers))),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 2),
    st.text(st.characters(max_codepoint=255), max_size=2),
)
def test_any_changed_character_is_noticed(part: int, at: float, cut: int, new: str) -> None:
    texts = [VALID.method, VALID.authority, VALID.target, BODY.decode("latin-1")]
    texts += [value for _, value in VALID.headers]
    start = int(at * len(texts[part]))
    changed = texts[part][:start] + new + texts[part][start + cut :]
    if _means_the_same(part, changed, texts[part]):
        return
    texts[part] = changed
    names = [name for name, _ in VALID.headers]
    headers = tuple(zip(names, texts[4:], strict=True))
    forged = Sent(texts[0], texts[1], texts[2], headers, texts[3].encode("latin-1"))
    with pytest.raises(Rejected):
        forged.believed(NOW)


def _means_the_same(part: int, one: str, other: str) -> bool:
    """A host's case, user and password before it, an empty query, space around a header's value."""
    same = {1: one.lower().rpartition("@")[2], 2: one.removesuffix("?")}
    return same.get(part, one if part < 4 else one.strip(" \t")) == other


def test_an_answer_is_bound_to_its_request() -> None:
    again = replace(PLAIN, headers=fields(sent(PLAIN, BODY, NOW).headers))
    answer = Response(200, {"content-type": "application/json"}, REQUEST)
    signed = sign(answer, BODY, KEYS, KEYS.key_id(NOW, "b-1"), NOW)
    assert verify(Response(200, signed, REQUEST), BODY, KEYS).key.instance == "b-1"
    for forged in (
        Response(200, signed, again),
        Response(201, signed, REQUEST),
        Response(200, signed, replace(REQUEST, method="DELETE")),
        Response(200, signed, replace(REQUEST, authority="c.example")),
        Response(200, REQUEST.headers, REQUEST),
    ):
        with pytest.raises(Rejected):
            verify(forged, BODY, KEYS)


def test_while_a_key_is_replaced_both_are_accepted() -> None:
    both = SharedKeys(["the shared key, which has 32 bytes", "another key, which has 32 bytes too"])
    assert verify(REQUEST, BODY, both).secret == 0
    other = replace(PLAIN, headers=fields(sent(PLAIN, BODY, NOW, OTHER_KEYS).headers))
    assert verify(other, BODY, both).secret == 1


@pytest.mark.parametrize("secrets", [(), ("short",), ("x" * 32, "short")])
def test_short_shared_keys_are_refused(secrets: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        SharedKeys(secrets)


def test_derived_keys_have_nothing_in_common() -> None:
    ids = (KeyId(1, "a"), KeyId(2, "a"), KeyId(1, "b"))
    keys = [derive(one) for one in ids for derive in (KEYS.signing_key, KEYS.sealing_key)]
    assert len(set(keys)) == len(keys)
