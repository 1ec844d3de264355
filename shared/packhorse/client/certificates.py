"""The certificates that a client trusts, loaded when a connection needs them."""

import ssl
from typing import Any

import httpx


class LoadedLate(ssl.SSLContext):
    """What httpx trusts by itself; most clients talk plain HTTP, and loading takes 30 ms."""

    _loaded: ssl.SSLContext | None = None
    _protocols: list[str]

    def __new__(cls) -> "LoadedLate":
        """Load nothing yet."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        """Keep what connections offer."""
        self._protocols = list(alpn_protocols)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        """Begin TLS on a socket. Raises `OSError` where there are no certificates to trust."""
        return self._trusting().wrap_socket(*args, **options)

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin TLS in memory. Raises `OSError` where there are no certificates to trust."""
        return self._trusting().wrap_bio(*args, **options)

    def _trusting(self) -> ssl.SSLContext:
        if self._loaded is None:
            loaded = httpx.create_ssl_context()
            loaded.set_alpn_protocols(self._protocols)
            self._loaded = loaded
        return self._loaded
