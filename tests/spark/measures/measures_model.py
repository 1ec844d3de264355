"""What the measures must be, counted one by one."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tests.harness.silver_rows import HOUR

Rows = Sequence[dict[str, Any]]
Key = tuple[str, str, int]
_WEEK = 7 * 24 * HOUR


def _ms(row: dict[str, Any]) -> int:
    return round(row["time"].timestamp() * 1000)


def _sane(said: int, record: int) -> int:
    return said if said > 0 and record - _WEEK <= said <= record else record


def _hour(moment: int) -> int:
    return moment // HOUR * HOUR


class Model:
    """Counts over plain rows of the three silver tables; hours are milliseconds since 1970."""

    def __init__(self, packages: Rows, statuses: Rows, announcements: Rows) -> None:
        self.packages = packages
        self.statuses = sorted(statuses, key=lambda row: (_ms(row), row["offset"]))
        self.subscriptions: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
        for row in sorted(announcements, key=lambda row: (_ms(row), row["offset"])):
            for subscription in row["subscriptions"]:
                if subscription["journal_id"]:
                    name = (
                        row["subscriber"],
                        subscription["publisher_agent"],
                        subscription["journal_id"],
                    )
                    self.subscriptions[name].append((_ms(row), row["editable"], subscription))
        self.outcomes = list(self._outcomes())

    def _outcomes(self) -> Any:
        subscribers = {row["subscriber"] for row in self.statuses} | {
            key[0] for key in self.subscriptions
        }
        for package in self.packages:
            for subscriber in sorted(subscribers):
                found = self._outcome(subscriber, package)
                if found is not None:
                    status, reason, moment = found
                    moment = max(moment, _ms(package))
                    accepted = _sane(package["accepted_ms"], _ms(package))
                    key = (subscriber, package["publisher_agent"], _hour(moment))
                    yield key, status, reason, moment - accepted, package

    def _outcome(self, subscriber: str, package: dict[str, Any]) -> tuple[str, str, int] | None:
        subscription = (subscriber, package["publisher_agent"], package["journal_id"])
        for row in self.statuses:
            about = (row["subscriber"], row["publisher_agent"], row["package_journal_id"])
            if about == subscription and row["package_offset"] == package["offset"]:
                return row["status"], row["reason"], _sane(row["decided_ms"], _ms(row))
        for number, (moment, editable, reported) in enumerate(
            self.subscriptions.get(subscription, [])
        ):
            if reported["offset"] >= package["offset"]:
                known = number > 0 or _ms(package) >= moment - 10_000
                if editable or not known or package["offset"] <= reported["started_offset"]:
                    return None
                return "IMPORTED", "", moment
        return None

    def _attempts(self, subscriber: str, package: dict[str, Any]) -> int:
        """Return the attempts that the first status about a package reports."""
        about = (subscriber, package["publisher_agent"], package["journal_id"], package["offset"])
        names = ("subscriber", "publisher_agent", "package_journal_id", "package_offset")
        return next(
            row["attempts"] for row in self.statuses if tuple(row[name] for name in names) == about
        )

    def _reported(self, subscriber: str, package: dict[str, Any]) -> int:
        """Return the highest `retries` that were announced while a package was first."""
        subscription = (subscriber, package["publisher_agent"], package["journal_id"])
        offsets = [
            one["offset"]
            for one in self.packages
            if (one["publisher_agent"], one["journal_id"]) == subscription[1:]
        ]
        retries = [
            reported["retries"]
            for _, _, reported in self.subscriptions.get(subscription, [])
            if min((one for one in offsets if one > reported["offset"]), default=None)
            == package["offset"]
        ]
        return max(retries, default=0)

    def failures(self) -> Counter[tuple[str, str, int, str]]:
        found: Counter[tuple[str, str, int, str]] = Counter()
        for key, status, reason, _, package in self.outcomes:
            if status == "REMOVED_FAILED":
                rest = self._attempts(key[0], package) - self._reported(key[0], package)
                found[(*key, reason)] += max(0, rest)
        for (subscriber, agent, _), rows in self.subscriptions.items():
            before = None
            for moment, _, reported in rows:
                same = before is not None and before["offset"] == reported["offset"]
                rise = reported["retries"] - (before["retries"] if same else 0)
                if rise > 0:
                    found[subscriber, agent, _hour(moment), reported["last_error"]] += rise
                before = reported
        return +found

    def blocked(self) -> Counter[Key]:
        found: Counter[Key] = Counter()
        for (subscriber, agent, _), rows in self.subscriptions.items():
            for number, (moment, _, reported) in enumerate(rows):
                running = reported["state"] == "RUNNING" and reported["blocked_since_ms"] > 0
                if reported["state"] != "BLOCKED" and not running:
                    continue
                following = rows[number + 1][0] if number + 1 < len(rows) else moment + 30_000
                for second in range(moment, min(following, moment + 30_000), 1000):
                    found[subscriber, agent, _hour(second)] += 1000
        return found

    def backlog(self) -> dict[Key, tuple[int, bool]]:
        last: dict[Key, tuple[int, bool]] = {}
        for (subscriber, agent, journal), rows in self.subscriptions.items():
            for moment, editable, reported in rows:
                waiting = [
                    package
                    for package in self.packages
                    if (package["publisher_agent"], package["journal_id"]) == (agent, journal)
                    and package["offset"] > reported["offset"]
                    and _ms(package) < _hour(moment) + HOUR
                ]
                last[subscriber, agent, _hour(moment)] = len(waiting), editable
        return last

    def delivery(self) -> dict[Key, dict[str, Any]]:
        found: dict[Key, dict[str, Any]] = defaultdict(lambda: defaultdict(int))
        latencies: dict[Key, list[int]] = defaultdict(list)
        for key, status, _, latency, package in self.outcomes:
            row = found[key]
            if status == "IMPORTED":
                row["delivered"] += 1
                row["bytes"] += package["body_length"]
                row["nodes"] += package["node_count"]
                latencies[key].append(latency)
            # Only who is editable reports this; an announcement of the hour knows better.
            row["editable"] |= status == "REMOVED"
            row["skipped"] += status == "SKIPPED"
            row["removed"] += status.startswith("REMOVED")
        for (*key, _), count in self.failures().items():
            found[tuple(key)]["failures"] += count  # type: ignore[index]
        for key, time in self.blocked().items():
            found[key]["blocked_ms"] += time
        for key, (waiting, editable) in self.backlog().items():
            found[key] |= {"backlog_end": waiting, "editable": editable}
        for key, row in found.items():
            row["attempts"] = row["delivered"] + row["failures"]
            for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "max")):
                row[f"latency_{name}_ms"] = percentile(sorted(latencies[key]), share)
        return found

    def slowest(self) -> dict[Key, list[tuple[int, int]]]:
        found: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        for key, status, _, latency, package in self.outcomes:
            if status == "IMPORTED":
                found[key].append((-latency, package["offset"]))
        return {key: sorted(rows)[:20] for key, rows in found.items()}


def percentile(values: list[int], share: float) -> int | None:
    """Return the value at a share of the way, between two values in proportion."""
    if not values:
        return None
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return int(values[low] + (values[high] - values[low]) * (place - low) + 0.5)
