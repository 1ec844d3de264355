"""Which instances have left for good: away from every view for longer than a restart takes."""

from collections.abc import Collection


class Absences:
    """Remembers since when instances that jobs name are away; time is a parameter.

    Whoever begins to watch gives everybody the whole patience again, so that a restart of the
    watcher never shortens it.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: dict[str, float] = {}

    def departed(self, named: Collection[str], live: Collection[str], now: float) -> frozenset[str]:
        """Return those of `named` that have been away for `patience_s`; `now` is monotonic.

        `live` are the instances of a view that is current. Who was seen, or is no longer named,
        begins anew.
        """
        away = frozenset(named) - frozenset(live)
        self._since = {one: self._since.get(one, now) for one in away}
        return frozenset(one for one in away if now - self._since[one] >= self._patience_s)
