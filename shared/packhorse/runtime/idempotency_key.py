"""The header that names a request, so that it may be sent again."""

from typing import Annotated

from fastapi import Header

MAX_KEY = 255
KEY_PATTERN = r"^[\x21-\x7e]+$"
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=MAX_KEY,
        pattern=KEY_PATTERN,
        description="Names this request: sent again within a day, it has no second effect",
    ),
]
