"""W3C trace context: carried from HTTP through the journal's headers, with or without an SDK."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACEPARENT = "traceparent"
_TRACESTATE = "tracestate"
_MAX_HEADER_BYTES = 512
_propagator = TraceContextTextMapPropagator()


def extract(headers: Mapping[str, bytes]) -> Context:
    """Return the trace context that a record or request carries, a new one when it has none.

    Never raises: a malformed header is as good as none (R30).
    """
    if TRACEPARENT not in headers:
        return _fresh()
    carrier = {
        name: headers[name].decode("ascii", "replace")
        for name in (TRACEPARENT, _TRACESTATE)
        if name in headers and len(headers[name]) <= _MAX_HEADER_BYTES
    }
    found = _propagator.extract(carrier, context=Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else _fresh()


def inject() -> dict[str, bytes]:
    """Return the headers that carry the present trace on; a new trace when there is none."""
    present = otel.get_current()
    if not trace.get_current_span(present).get_span_context().is_valid:
        present = _fresh()
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, context=present)
    return {name: value.encode("ascii") for name, value in carrier.items()}


def traceparent() -> str:
    """Return the present trace's own header, or an empty text when there is no trace."""
    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


@contextmanager
def continued(headers: Mapping[str, bytes]) -> Iterator[None]:
    """Work inside the trace that `headers` carry."""
    token = otel.attach(extract(headers))
    try:
        yield
    finally:
        otel.detach(token)


def trace_id() -> str:
    """Return the present trace's id as 32 hex digits, or an empty text."""
    found = trace.get_current_span().get_span_context()
    return format(found.trace_id, "032x") if found.is_valid else ""


def _fresh() -> Context:
    ids = SpanContext(  # no secrets: asking the system for them lets another thread go first
        trace_id=random.getrandbits(128) | 1,
        span_id=random.getrandbits(64) | 1,
        is_remote=False,
        trace_flags=TraceFlags(0),
    )
    return trace.set_span_in_context(NonRecordingSpan(ids), Context())
