"""Any message, for Hypothesis."""

from typing import Any

from hypothesis import strategies as st

from packhorse.wire.messages import (
    Action,
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    DiscoveryMessage,
    PackageBody,
    PackageEntry,
    PackageMessage,
    ResetCommand,
    RetryCommand,
    Status,
    StatusMessage,
    SubscriberState,
    SubscriptionState,
)

texts = st.text(st.characters(codec="utf-8"), max_size=40)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
_producers = st.text(st.characters(exclude_categories=("C", "Z")), max_size=40)
_paths = st.lists(texts, max_size=4).map(tuple)


def _of(kind: Any, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **members)


entries: st.SearchStrategy[PackageEntry] = _of(
    PackageEntry,
    package_id=texts,
    publisher_agent=texts,
    action=st.sampled_from(Action),
    paths=_paths,
    deep_paths=_paths,
    user=texts,
    producer=_producers,
    epoch=int64,
    sequence=int64,
    body_length=int64,
    node_count=int64,
    accepted_ms=int64,
)

_digests = st.binary(min_size=32, max_size=32)

bodies: st.SearchStrategy[PackageBody] = st.one_of(
    _of(PackageBody, sha256=_digests, content_length=int64, inline=st.binary(max_size=100)),
    _of(PackageBody, sha256=_digests, content_length=int64, reference=texts),
)

packages: st.SearchStrategy[PackageMessage] = _of(
    PackageMessage,
    entry=entries,
    body=st.none() | bodies,
    publisher_instance=texts,
    package_type=texts,
    metadata=st.dictionaries(texts, texts, max_size=3),
)

statuses: st.SearchStrategy[StatusMessage] = _of(
    StatusMessage,
    subscriber=texts,
    publisher_agent=texts,
    offset=int64,
    status=st.sampled_from(Status),
    package_id=texts,
    attempts=int32,
    reason=texts,
    command_id=texts,
    decided_ms=int64,
    subscriber_instance=texts,
    journal_id=texts.filter(bool),
)

_states = _of(
    SubscriberState,
    publisher_agent=texts,
    offset=int64,
    retries=int32,
    state=st.sampled_from(SubscriptionState),
    last_error=texts,
    next_attempt_ms=int64,
    blocked_since_ms=int64,
    journal_id=texts,
    epoch=int64,
    settled_offset=int64,
    started_offset=int64,
    package_id=texts,
)

announcements: st.SearchStrategy[DiscoveryMessage] = _of(
    DiscoveryMessage,
    subscriber=texts,
    states=st.lists(_states, max_size=3).map(tuple),
    editable=st.booleans(),
    max_retries=int32,
    endpoint=texts,
    announced_ms=int64,
    subscriber_instance=texts,
    include=st.lists(texts, max_size=3).map(tuple),
    exclude=st.lists(texts, max_size=3).map(tuple),
)

_command = {
    "command_id": texts,
    "subscriber": texts,
    "publisher_agent": texts,
    "user": texts,
    "issued_ms": int64,
    "journal_id": texts,
}

commands: st.SearchStrategy[Command] = st.one_of(
    _of(ClearCommand, offset=int64, **_command),
    _of(ResetCommand, offset=int64, **_command),
    _of(RetryCommand, **_command),
    _of(ControlCommand, desired=st.sampled_from(DesiredState), **_command),
)

command_statuses: st.SearchStrategy[CommandStatusMessage] = _of(
    CommandStatusMessage,
    command_id=texts,
    subscriber=texts,
    publisher_agent=texts,
    state=st.sampled_from(CommandState),
    removed=int64,
    reason=texts,
    decided_ms=int64,
    subscriber_instance=texts,
)
