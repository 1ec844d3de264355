"""Ids of refused packages: of those that are no longer kept none is ever taken for a new one."""

from hypothesis import given
from hypothesis import strategies as st

from packhorse.wire.messages import Status
from packhorse_services.subscriber.staging.refusals import Refusals

reported = st.lists(st.tuples(st.text(max_size=2), st.sampled_from(Status)), max_size=60)


@given(reported=reported, kept=st.integers(1, 5), filter_bytes=st.sampled_from([1, 8, 4_096]))
def test_r30_no_refusal_is_lost_and_few_are_kept(
    reported: list[tuple[str, Status]], kept: int, filter_bytes: int
) -> None:
    refusals, model = Refusals(kept, filter_bytes), dict[str, Status]()
    for package_id, status in reported:
        refusals.take(package_id, status, "because")
        model[package_id] = status
        assert len(refusals._known) <= kept
        assert len(refusals._filter) in (0, filter_bytes)
    for package_id, status in model.items():
        found = refusals.get(package_id)
        if status is Status.IMPORTED or not package_id:
            assert found is None
        else:
            assert found == (status, "because") or refusals.may_have(package_id)


def test_an_id_that_was_never_refused_is_hardly_ever_suspected() -> None:
    refusals = Refusals(kept=10)
    for number in range(20_000):
        refusals.take(f"refused-{number}", Status.REMOVED, "")
    suspected = sum(refusals.may_have(f"new-{number}") for number in range(10_000))
    assert suspected < 10
