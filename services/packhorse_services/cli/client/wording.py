"""What a service says of its routes, in the words of the command line."""

import re

_WORDS = [
    (re.compile(pattern), words)
    for pattern, words in (
        (r"(`packhorse [^`]*`),? or (?:GET|PUT|POST|PATCH|DELETE) /[^\s,;)]*", r"\1"),
        (r"PUT /subscribers/([^/\s]+)/(pause|stop|resume)\b", r"`packhorse \2 subscriber \1`"),
        (r"GET /queues/([^/\s]+)/errors\b", r"`packhorse get errors \1`"),
        (r"GET /queues/([^/\s,;]+)", r"`packhorse get queue \1`"),
        (
            r"GET /(subscribers|queues|distributions|commands|schedules|job-queues)(?=[\s,;.]|$)",
            r"`packhorse get \1`",
        ),
        (r"GET /distributions/([^/\s,;]+)", r"`packhorse get distribution \1`"),
        (r"POST /distribute\b", "`packhorse distribute`"),
        (r"\bin leave_behind\b", "with --leave-behind"),
    )
]


def in_words_of_commands(text: str) -> str:
    """Return a text in which requests that commands make are these commands."""
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text
