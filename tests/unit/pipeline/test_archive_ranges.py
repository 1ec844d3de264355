"""Places that a stream names become ranges again, wherever Spark cuts its batches."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from packhorse_services.pipeline.archive.places import Range
from packhorse_services.pipeline.archive.reading import ranges

_RANGES = st.lists(
    st.builds(
        lambda topic, number, start, size: Range(topic, number, start, start + size),
        st.sampled_from("ab"),
        st.integers(0, 1),
        st.integers(0, 50),
        st.integers(1, 20),
    ),
    max_size=6,
)


@given(_RANGES, st.integers(1, 15))
def test_ranges_survive_the_batches(wanted: list[Range], size: int) -> None:
    places = [(one.topic, one.partition, n) for one in wanted for n in range(one.start, one.end)]
    columns = ("topic", "partition", "offset")
    batches = [
        pa.RecordBatch.from_pylist(
            [dict(zip(columns, place, strict=True)) for place in places[at : at + size]]
        )
        for at in range(0, len(places), size)
    ]
    found = list(ranges(batches))
    assert [
        (one.topic, one.partition, n) for one in found for n in range(one.start, one.end)
    ] == places
    assert len(found) <= len(wanted)
