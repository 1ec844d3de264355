"""What a package is called: when its export began, and enough chance that nobody else has it."""

RANDOM_BITS = 64


def make_package_id(wall_ms: int, chance: int) -> str:
    """Return the id of a package; it ends with hex, as `package_key` wants.

    `chance` is a number of `RANDOM_BITS` random bits.
    """
    return f"dstrpck-{wall_ms}-{chance:016x}"
