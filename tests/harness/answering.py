"""A server of the test's own on loopback, which answers as a handler says."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def answering(
    handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve until the block ends, by TLS where it is given, without a log; gives the URL."""
    quiet = type(handler.__name__, (_Quiet, handler), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        with serving(server):
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Let a server answer until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
