"""How long until the next exchange: longer while nothing changes, short again when it does."""

import threading

from packhorse_services.topology.connectors.options import ConnectorConfiguration
from packhorse_services.topology.connectors.states import ConnectorPhase

_FIRST_RETRY_S = 1.0


class Stability:
    """Since when what there is to announce has been the same; safe for threads.

    Times are seconds of a monotonic clock.
    """

    def __init__(self, now: float) -> None:
        self._lock = threading.Lock()
        self._content = ""
        self._since = now

    def observe(self, content: str, now: float) -> float:
        """Take note of what there is to announce; return for how many seconds it has been so."""
        with self._lock:
            if content != self._content:
                self._content, self._since = content, now
            return now - self._since


def interval_of(settings: ConnectorConfiguration, stable_s: float) -> float:
    """Return the seconds from one exchange to the next, for what has been stable for so long.

    After one time-out it grows, by as many time-outs as there were, up to the factor.
    """
    factor = min(
        max(stable_s / settings.connector_timeout_s, 1.0), settings.connector_backoff_factor
    )
    return settings.connector_interval_s * factor


def is_fresh(settings: ConnectorConfiguration, stable_s: float) -> bool:
    """Return whether the peer shall take its back-off back as well."""
    return stable_s < settings.connector_timeout_s


def validity_of(settings: ConnectorConfiguration, backoff_s: float) -> float:
    """Return for how many seconds an announcement holds whose sender comes again in `backoff_s`."""
    return settings.connector_timeout_s + max(0.0, backoff_s - settings.connector_interval_s)


def pause_after(
    settings: ConnectorConfiguration,
    state: ConnectorPhase,
    own_interval_s: float,
    peer_interval_s: float,
    failures: int,
) -> float:
    """Return the seconds to wait after an exchange that has led to `state`.

    Both sides say how long they would wait, and the shorter time counts. A failed connector tries
    again soon, then more and more rarely, but as often as one that works.
    """
    if state in (ConnectorPhase.STANDBY, ConnectorPhase.LOOP):
        return settings.longest_connector_interval_s
    if state is ConnectorPhase.CONNECTED:
        return max(settings.connector_interval_s, min(own_interval_s, peer_interval_s))
    return float(min(settings.connector_interval_s, _FIRST_RETRY_S * 2 ** min(failures - 1, 20)))
