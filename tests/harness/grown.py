"""By how much metrics of this process grow while a test does something."""

from collections.abc import Callable

from prometheus_client import REGISTRY


def growth(*samples: tuple[str, dict[str, str]]) -> Callable[[], list[float]]:
    """Return what says by how much these samples, named without `packhorse_`, grow from now on."""

    def now() -> list[float]:
        return [
            REGISTRY.get_sample_value(f"packhorse_{name}", labels) or 0.0
            for name, labels in samples
        ]

    before = now()
    # Rounded, for a sum of seconds to which other tests added is not exact in its last bits.
    return lambda: [round(after - then, 6) for after, then in zip(now(), before, strict=True)]
