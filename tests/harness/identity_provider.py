"""A real identity provider: the npm package `oidc-provider`, in a process of its own."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx

from tests.harness.client_tools import NODE, node_modules

_PINNED = Path(__file__).parent / "oidc"
SECRET = "a secret: with %"


@contextmanager
def identity_provider() -> Iterator[str]:
    """Run it until the block ends; gives its issuer. Its client is `console`, with `SECRET`."""
    modules = node_modules("oidc", _PINNED)
    command = [NODE / "node", _PINNED / "provider.mjs", modules]
    # The wheel's `node` starts another process, which no signal to it would reach.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        with running.stdin:
            issuer = running.stdout.readline().strip()
            assert issuer, "the identity provider says why on standard error"
            yield issuer


def signs_in(browser: httpx.Client, url: str, account: str) -> httpx.Response:
    """Fill in the provider's forms as somebody; return its redirect back to the client."""
    answer = browser.get(url)
    while True:
        if answer.is_redirect:
            target = urljoin(str(answer.url), answer.headers["location"])
            if not target.startswith(str(httpx.URL(url).copy_with(path="/", query=None))):
                return answer
            answer = browser.get(target)
            continue
        action = re.search(r'<form[^>]* action="([^"]+)"', answer.text)
        prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
        assert action, answer.text
        form = {"prompt": prompt[1] if prompt else "", "login": account, "password": "any"}
        answer = browser.post(urljoin(str(answer.url), action[1]), data=form)
