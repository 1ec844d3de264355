"""What a range of paths holds, summed batch by batch, against asking each node."""

from bisect import bisect_right

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from packhorse_services.pipeline.audit.comparison import differing, sums_of
from packhorse_services.pipeline.history.node_lists import ROWS

PATHS = st.text("/a-é\U0001f600", min_size=1, max_size=3)
NODES = st.dictionaries(PATHS, st.integers(0, 2**60 - 1), max_size=12)


@given(st.lists(PATHS, max_size=5, unique=True), st.lists(NODES, max_size=3))
def test_ranges_have_the_sums_of_their_nodes(
    more: list[str], batches: list[dict[str, int]]
) -> None:
    starts = ["", *sorted(more)]
    wanted: dict[int, list[int]] = {}
    for nodes in batches:
        for path, number in nodes.items():
            wanted.setdefault(bisect_right(starts, path) - 1, []).append(number)
    held = ([[*nodes], [1] * len(nodes), [*nodes.values()]] for nodes in batches)
    found = sums_of(starts, (pa.record_batch(columns, schema=ROWS) for columns in held))
    assert found == {at: (len(numbers), sum(numbers)) for at, numbers in wanted.items()}


def test_which_ranges_differ() -> None:
    wanted = [(0, 2, "10"), (1, 1, "5"), (3, 1, "7")]
    assert differing(wanted, [(0, 2, "10"), (1, 1, "5"), (2, 0, "0"), (3, 1, "7")]) == []
    assert differing(wanted, [(0, 2, "11"), (2, 1, "1"), (3, 2, "7")]) == [0, 1, 2, 3]
