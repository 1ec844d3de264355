"""A `kafka://` URL taken apart: which brokers, and how the operator wants to speak to them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from packhorse.errors import Permanent

_DELIVERY_TIMEOUT = "delivery.timeout.ms"
_DEFAULT_DELIVERY_SECONDS = 30.0
_FROM_FILE = ".file"
_FIXED = frozenset(
    {
        *("acks", "auto.offset.reset", "bootstrap.servers", "check.crcs", "enable.auto.commit"),
        *("enable.gapless.guarantee", "enable.idempotence", "enable.partition.eof"),
        *("isolation.level", "message.timeout.ms", "metadata.broker.list"),
        *("request.required.acks", "transactional.id"),
    }
)


class BadKafkaUrl(Permanent):
    """The URL of the journal can't be used; the text says which part of it and why."""


@dataclass(frozen=True, slots=True)
class Address:
    """The brokers, and settings of librdkafka by their own names. `repr` shows no setting."""

    servers: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    delivery_seconds: float = _DEFAULT_DELIVERY_SECONDS


def parse_address(url: str) -> Address:
    """Take `kafka://host:port,host:port?name=value&name=value` apart.

    Every name is a setting of librdkafka; values are percent-encoded. A name that ends in `.file`
    reads its value from that file, so that `sasl.password.file` keeps the secret out of the URL.
    Settings that the journal's promises rest on are refused. Raises `BadKafkaUrl`.
    """
    servers, _, query = url.partition("://")[2].partition("?")
    servers = servers.rstrip("/")
    if not servers or "@" in servers or "/" in servers:
        raise BadKafkaUrl(
            "a Kafka URL is kafka://host:port,host:port?name=value; the user goes into "
            "sasl.username and the password into sasl.password.file"
        )
    settings = dict(_settings(query))
    delivery = settings.pop(_DELIVERY_TIMEOUT, str(int(_DEFAULT_DELIVERY_SECONDS * 1000)))
    if not delivery.isdecimal() or int(delivery) == 0:
        raise BadKafkaUrl(f"{_DELIVERY_TIMEOUT} is a number of milliseconds above 0")
    return Address(servers, settings, int(delivery) / 1000)


def _settings(query: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, query.split("&")):
        name, separator, value = part.partition("=")
        name, value = unquote(name), unquote(value)
        if not separator or not name:
            raise BadKafkaUrl(f"a setting in a Kafka URL is name=value, and {name!r} has no value")
        if name.endswith(_FROM_FILE):
            name, value = name.removesuffix(_FROM_FILE), _content(name, value)
        if name in _FIXED:
            raise BadKafkaUrl(
                f"{name} can't be set in the URL, since the journal's promises rest on it"
            )
        yield name, value


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadKafkaUrl(f"{name} names a file that can't be read: {error}") from error
