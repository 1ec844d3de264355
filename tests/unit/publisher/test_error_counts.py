"""The counts of the error queues: the newest one counts, whoever has it."""

from collections.abc import Mapping

from packhorse_services.publisher.queues.error_counts import ErrorCounts


def test_what_is_noted_while_all_are_counted_is_newer() -> None:
    counts = ErrorCounts()
    counts.note("a", 9)

    def counted() -> Mapping[str, int]:
        before = {"a": 3, "b": 2}
        counts.note("a", 1)  # somebody dismisses two of them after they were counted
        return before

    counts.renew(counted)
    assert (counts.count("a"), counts.count("b"), counts.count("c")) == (1, 2, 0)
    counts.renew(lambda: {"a": 4})
    assert (counts.count("a"), counts.count("b")) == (4, 0)
