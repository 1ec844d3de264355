"""Which partition a key belongs to: the same on every backend, for ever."""

from zlib import crc32


def partition_for(key: str | None, partitions: int) -> int:
    """Return CRC-32 of the UTF-8 key modulo `partitions`, as librdkafka's `consistent` does.

    Without a key it is partition 0.
    """
    return 0 if key is None else crc32(key.encode()) % partitions
