"""Secrets within the URLs of settings, which whoever shows a setting leaves out."""

import re
from urllib.parse import unquote

# As SQLAlchemy reads a database's URL: a password ends with "@", and "/" and "?" are part of it.
_PASSWORD = re.compile(r"(\bpostgres(?:ql)?(?:\+\w+)?://[^:/]*:)[^@]*@(?:[^@/?]*@)*")
_PASSWORD_ELSEWHERE = re.compile(r"(://[^:/?#]*:)[^/?#]*@")
_OPTION = re.compile(r'(?<=[?&])([^=&\s]+)=[^&\s"]*')
_SECRET = re.compile(r"password|secret|key|token")
_NAMES_OF_FILES = (".file", "_file", ".location", "sslkey", ".keytab")


def without_secrets(value: str) -> str:
    """Return a setting with "***" in place of the passwords and keys that its URLs hold.

    Those are what follows a user's name, and options of the query that are named after a secret;
    not the name of the file that holds one.
    """
    for password in (_PASSWORD, _PASSWORD_ELSEWHERE):
        value = password.sub(r"\1***@", value)
    return _OPTION.sub(_shown_option, value)


def _shown_option(option: re.Match[str]) -> str:
    name = unquote(option[1]).lower()
    if not _SECRET.search(name) or name.endswith(_NAMES_OF_FILES):
        return option[0]
    return f"{option[1]}=***"
