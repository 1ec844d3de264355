"""Whole numbers that a form of a page sends."""


def whole_number(text: str, least: int = 0, most: int = 2**63 - 1) -> int | None:
    """Return the number that a form's text says; None for what is none, or out of these bounds."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):
        return None
    return int(text) if least <= int(text) <= most else None
