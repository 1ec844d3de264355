"""`packhorse config check`: what commands would use, and whether it works."""

import re

from packhorse_services.cli import output
from packhorse_services.cli.connection import Connection

_PASSWORD = re.compile(r"(?<=:)[^:@/]+(?=@)")
_SHOWN = 4


def check(connection: Connection) -> None:
    """Print the effective settings, secrets masked. Raises `CommandFailed` when they don't work."""
    token = connection.token()
    output.line(f"data     {connection.directory.root}")
    output.line(f"server   {connection.publisher_url()}")
    output.line(f"token    {masked(token) if token else '(none)'}")
    for name, value in sorted(connection.directory.author_settings().items()):
        shown = masked(value) if name.endswith("_TOKEN") else _PASSWORD.sub("***", value)
        output.line(f"{name}={shown}")
    with connection.publisher() as publisher:
        version = publisher.get("/")["version"]
        count = len(publisher.get("/subscribers")["subscribers"])
    output.tell(f"packhorse {version} answers, and the token is good; {count} subscribers")


def masked(secret: str) -> str:
    """Return enough of a secret to tell two apart."""
    return secret[:_SHOWN] + "…" if len(secret) > 2 * _SHOWN else "…"
