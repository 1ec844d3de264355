"""The one door to the journal's backends: a URL in, a `Journal` out."""

from collections.abc import Sequence

from packhorse.errors import Permanent
from packhorse.messaging.api import Journal
from packhorse.runtime.extras import how_to_install


class UnknownJournal(Permanent):
    """The URL names no journal that packhorse has a backend for."""


def open_journal(url: str, *, client_name: str) -> Journal:
    """Return the journal at `url`; it connects when first used.

    `memory://name` lives in this process and is shared by everybody who opens that name;
    `postgresql://user:password@host/database` is the SQL journal; `kafka://host:port,host:port`
    takes any librdkafka setting as `?security.protocol=…`. `client_name` is what the backend's
    operator sees. Raises `UnknownJournal`, or another `Permanent` for a URL that can't be used.
    """
    scheme = url.partition("://")[0]
    if scheme == "memory":
        from packhorse.messaging.memory import open_memory_journal

        return open_memory_journal(url)
    if scheme in ("postgresql", "postgres"):
        from packhorse.db.engine import check_database_url
        from packhorse.messaging.sql.journal import SqlJournal

        check_database_url(url)
        return SqlJournal(url, client_name)
    if scheme == "kafka":
        return _open_kafka(url, client_name)
    raise UnknownJournal(
        f"no journal has URLs of the kind {scheme!r}; use postgresql:// or kafka://"
    )


def grant_role(url: str, role: str, topics: Sequence[str], *, client_name: str) -> None:
    """Let a role of the SQL journal's server read the journal, and append to `topics` alone.

    `url` has the login that owns the journal's tables. Raises `packhorse.errors.Permanent` when
    that can't be, `UnknownJournal` for another journal, and `JournalUnavailable`.
    """
    if not url.startswith(("postgresql://", "postgres://")):
        raise UnknownJournal(
            "only a journal in PostgreSQL has roles; for kafka:// docs/security.md has the ACLs"
        )
    from packhorse.db.engine import check_database_url
    from packhorse.messaging.sql.grants import grant
    from packhorse.messaging.sql.session import SharedSession

    check_database_url(url)
    session = SharedSession(url, client_name)
    try:
        with session.use() as connection:
            grant(connection, role, topics)
    finally:
        session.close()


def kafka_settings(url: str) -> tuple[str, dict[str, str]]:
    """Return the brokers of a `kafka://` URL, and librdkafka's settings in it by their names.

    For who speaks to Kafka with another client. Raises `packhorse.errors.Permanent` for a URL
    that can't be used.
    """
    from packhorse.messaging.kafka.address import parse_address

    address = parse_address(url)
    return address.servers, dict(address.settings)


def _open_kafka(url: str, client_name: str) -> Journal:
    try:
        from packhorse.messaging.kafka.journal import KafkaJournal
    except ModuleNotFoundError as error:
        raise UnknownJournal(
            f"Kafka's client is not installed: {how_to_install('kafka')}"
        ) from error
    return KafkaJournal(url, client_name)
