"""What is wrong with a value, in the words of this project."""

import re

_MAX_TEXT = 300
_WORDS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^Value error, ", ""),
        (r"^Field required$", "this is missing"),
        (
            r"^(Extra inputs are not permitted|Unexpected keyword argument)$",
            "this is not known here",
        ),
        (r"^Invalid JSON: .*$", "this is no JSON"),
        (r"^Input should be (a valid )?", r"this must be \1"),
        (r"\ba valid dictionary\b( or .*)?$", "an object"),
        (r"must be a valid (?=[aeiou])", "must be an "),
        (r"must be a valid ", "must be a "),
        (r"^(String|List|Dictionary|Value|Data) should ", "this must "),
        (r", unable to (parse|interpret) .*$", ""),
    )
]


def reason_of(message: str) -> str:
    """Return what a check has found in the words of this project, not in pydantic's."""
    for pattern, words in _WORDS:
        message = pattern.sub(words, message)
    return message[:_MAX_TEXT]
