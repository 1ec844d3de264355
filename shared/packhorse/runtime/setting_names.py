"""Every setting of the product, so that a misspelt one is refused and not ignored."""

import difflib
import re
from collections.abc import Iterable

_PREFIX = "PACKHORSE_"

SETTING_NAMES = frozenset(
    [
        *("AGENT", "ALLOWED_HOSTS", "ANNOUNCE_S", "AUTHENTICATION", "BACKOFF_FIRST_S"),
        *("BACKOFF_LONGEST_S", "BLOBS_URL", "BLOBS_URL_FILE", "CACHE_BYTES", "CLEANUP_CRON"),
        *("CLEANUP_HOURS", "CLEANUP_SERVER", "CLEANUP_URL", "CONNECTOR_ALLOW"),
        *("CONNECTOR_BACKOFF_FACTOR", "CONNECTOR_CONNECT_TIMEOUT_S", "CONNECTOR_ENCRYPTION"),
        *("CONNECTOR_GZIP", "CONNECTOR_INTERVAL_S", "CONNECTOR_KEY_TTL_S", "CONNECTOR_OTHER_KEY"),
        *("CONNECTOR_OTHER_KEY_FILE", "CONNECTOR_PUBLIC_URL", "CONNECTOR_READ_TIMEOUT_S"),
        *("CONNECTOR_SHARED_KEY", "CONNECTOR_SHARED_KEY_FILE", "CONNECTOR_TIMEOUT_S"),
        *("CONNECTOR_URLS", "CONSOLE_SERVER", "CONSOLE_URL", "CONTENT_SERVER", "CONTENT_URL"),
        *("DATA", "DATABASE_URL", "DATABASE_URL_FILE", "DOCS", "EDITABLE", "ENDPOINT"),
        *("EVENT_STREAMS", "EXCLUDE", "EXCLUDE_PROPERTIES", "GROUP_BYTES", "GROUP_PACKAGES"),
        *("HOOKS", "HOOKS_FILE", "HOST", "IDEMPOTENCY_HOURS", "IDLE_IN_TRANSACTION_S", "ID_FILE"),
        *("IMPORT_ROOTS", "INCLUDE", "INSTANCE", "INSTANCE_ID", "IVY_SETTINGS", "JOBS_SERVER"),
        *("JOBS_URLS", "JOURNAL_URL", "JOURNAL_URL_FILE", "JWKS_URL", "JWT_AUDIENCE", "JWT_ISSUER"),
        *("JWT_NAME_CLAIM", "JWT_SCOPES", "JWT_SCOPES_CLAIM", "KEEP_FAILED_DAYS"),
        *("KEEP_PACKAGES_HOURS", "LEADER_PREFIX", "LEASE_S", "LOG_FORMAT", "LOG_LEVEL"),
        *("MAP_PATHS", "MAX_BLOB_BYTES", "MAX_CONNECTIONS", "MAX_PACKAGE_BYTES", "MAX_REQUESTS"),
        *("MAX_RETRIES", "MAX_WAITS", "MIN_BODY_RATE", "MIN_EVENT_DELAY_S", "OIDC_CLIENT_ID"),
        *("OIDC_CLIENT_SECRET", "OIDC_CLIENT_SECRET_FILE", "OIDC_PARAMETERS", "OIDC_SCOPES"),
        *("ORPHAN_GRACE_HOURS", "OUTBOX_AGE_S", "OUTBOX_PACKAGES", "PIPELINE_URL", "PORT", "PORTS"),
        *("PREFETCH_BYTES", "PREFETCH_PACKAGES", "PRODUCERS", "PRODUCER_DAYS", "PUBLISHER_AGENTS"),
        *("PUBLISHER_TOKEN", "PUBLISHER_TOKEN_FILE", "PUBLISHER_URL", "PUBLISHER_URLS"),
        *("QUEUE_BYTES", "QUEUE_PACKAGES", "READY_FORCE_S", "READY_IDLE_S", "READY_LATENCY_S"),
        *("READY_WHEN", "REMEMBER_PACKAGES_H", "RETENTION_SECONDS", "SERVER", "SESSION_IDLE_S"),
        *("SESSION_LONGEST_S", "SPARK_CONF", "SPARK_JARS", "SPARK_MASTER", "SPARK_MEMORY", "START"),
        *("SUBSCRIBER", "SUBSCRIBER_DATABASES", "SUBSCRIBER_DATABASES_FILE", "SUBSCRIBER_SERVER"),
        *("SUBSCRIBER_URLS", "TABLES_URL", "TABLES_URL_FILE", "TOKEN", "TOKEN_FILE"),
        *("TOPIC_COMMAND", "TOPIC_DISCOVERY", "TOPIC_EVENT", "TOPIC_PACKAGE", "TOPIC_PREFIX"),
        *("TOPIC_STATUS", "TOPOLOGY_INTERVAL_S", "TOPOLOGY_SERVER", "TOPOLOGY_STORE"),
        *("TOPOLOGY_TIMEOUT_S", "TOPOLOGY_URLS", "TYPED", "UPSTREAM_TIMEOUT_S", "WAIT_FOR"),
    ]
)
"""What may follow `PACKHORSE_`; one file of settings may serve all programs."""

_KUBERNETES = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_\d+_(TCP|UDP|SCTP).*)?$")
"""Variables of Kubernetes for services whose names begin with packhorse."""


def unknown_settings(variables: Iterable[str]) -> list[str]:
    """Return a sentence for each variable that begins with `PACKHORSE_` and is no setting."""
    found = []
    for variable in sorted(variables):
        name = variable.removeprefix(_PREFIX)
        if name == variable or name in SETTING_NAMES or _KUBERNETES.search(name):
            continue
        close = difflib.get_close_matches(name, SETTING_NAMES, n=1)
        meant = f"; did you mean {_PREFIX}{close[0]}?" if close else ""
        found.append(f"{variable} is no setting of packhorse{meant}")
    return found
