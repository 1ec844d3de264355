"""Trace context goes through the journal's headers, with no SDK installed."""

import re
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from packhorse.runtime import tracing
from tests.unit.runtime.apps import call, sample_app

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01".encode()
FORM = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]")


def test_an_incoming_trace_is_carried_on() -> None:
    with tracing.continued({"traceparent": PARENT, "tracestate": b"a=1"}):
        assert tracing.trace_id() == TRACE
        assert tracing.inject() == {"traceparent": PARENT, "tracestate": b"a=1"}
    assert tracing.trace_id() == ""


def test_without_a_trace_a_new_one_begins() -> None:
    first, second = tracing.inject(), tracing.inject()
    assert FORM.fullmatch(first["traceparent"])
    assert first != second


def test_one_piece_of_work_has_one_trace() -> None:
    with tracing.continued({}):
        assert tracing.inject() == tracing.inject()
        assert tracing.trace_id().encode() in tracing.inject()["traceparent"]


@given(
    st.dictionaries(
        st.sampled_from(["traceparent", "tracestate", "other"]),
        st.binary(max_size=600) | st.just(PARENT) | st.just(PARENT + b"-x") | st.just(b"00-" * 200),
    )
)
def test_r30_any_headers_give_a_valid_trace(headers: Mapping[str, bytes]) -> None:
    with tracing.continued(headers):
        assert FORM.fullmatch(tracing.inject()["traceparent"])


def test_a_requests_trace_is_in_its_problem() -> None:
    answer = call(sample_app(), "GET", "/nowhere", headers={"traceparent": PARENT.decode()})
    assert answer.json()["trace_id"] == TRACE
