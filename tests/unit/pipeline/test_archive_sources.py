"""Files of bronze are shared among the tasks that decode them, each of them once."""

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from packhorse_services.pipeline.archive.silver import shared
from packhorse_services.pipeline.archive.silver_files import BronzeFile

_SIZES = st.lists(st.integers(0, 1000), max_size=20)


@given(_SIZES, st.integers(1, 5))
def test_every_file_is_in_one_share_and_shares_are_even(sizes: list[int], count: int) -> None:
    day = date(2024, 5, 1)
    sources = [(BronzeFile(f"f{number}", "t", day), size) for number, size in enumerate(sizes)]
    sources.sort(key=lambda each: each[1], reverse=True)
    shares = shared(sources, count)
    assert len(shares) == count
    found = [source for share in shares for source in share]
    assert sorted(one.path for one in found) == sorted(one.path for one, _ in sources)
    size_of = dict(sources)
    totals = [sum(size_of[source] for source in share) for share in shares]
    assert max(totals) - min(totals) <= max(sizes, default=0)
