"""A browser's way in to the console, asked for by who has a token."""

from packhorse.client.exchange import Operation, Request, requested


def sign_in_link() -> Operation[str]:
    """Return the path of a page of the console that signs a browser in with this token, once.

    It is good for ten minutes, and whoever has it is signed in: show it to its owner only.
    """
    answer = yield from requested(Request("POST", "/pages/sign-in-links", "console"))
    return str(answer["path"])
