"""Which reasons for waiting are worth a line."""

from packhorse.runtime.reason_change import ReasonChange


def test_a_reason_is_news_once_and_again_after_a_minute_of_it() -> None:
    seconds = [1_000.0]
    change = ReasonChange(lambda: seconds[0])
    assert change.is_news("the disk is full")
    seconds[0] += 59.0
    assert not change.is_news("the disk is full")
    seconds[0] += 1.0
    assert change.is_news("the disk is full")
    assert not change.is_news("the disk is full")


def test_another_reason_is_news_at_once_also_one_of_before() -> None:
    change = ReasonChange(lambda: 0.0)
    assert [change.is_news(reason) for reason in ("", "full", "away", "full", "full")] == [
        *(True, True, True, True, False)
    ]
