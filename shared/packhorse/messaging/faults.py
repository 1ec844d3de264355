"""What is wrong with the topics of a journal, in sentences for the operator."""

from collections.abc import Mapping, Sequence

from packhorse.messaging.api import TopicSpec, topic_missing


def topic_faults(wanted: Sequence[TopicSpec], found: Mapping[str, TopicSpec]) -> list[str]:
    """Return a sentence for each way in which `found` is less than `wanted` asks for."""
    return [fault for spec in wanted for fault in _faults(spec, found.get(spec.name))]


def _faults(wanted: TopicSpec, found: TopicSpec | None) -> list[str]:
    name = wanted.name
    if found is None:
        return [str(topic_missing(name))]
    faults = []
    if found.partitions != wanted.partitions:
        faults.append(
            f"topic {name} has {found.partitions} partitions and must have {wanted.partitions}; "
            "keys would move, so create it anew under another name"
        )
    if how_long(found.retention_ms) < how_long(wanted.retention_ms):
        faults.append(
            f"topic {name} keeps records for {found.retention_ms} ms and must keep them for "
            f"{wanted.retention_ms} ms; raise its retention with `packhorse topics retention`"
        )
    if found.max_record_bytes < wanted.max_record_bytes:
        faults.append(
            f"topic {name} accepts records of {found.max_record_bytes} bytes and must accept "
            f"{wanted.max_record_bytes}; raise its largest record size"
        )
    return faults


def how_long(retention_ms: int) -> float:
    """Return a retention as a number to compare: -1 is for ever."""
    return float("inf") if retention_ms < 0 else retention_ms
