"""Records of packages, as the queue cache reads them."""

from packhorse.messaging.api import Record
from packhorse.wire.messages import PackageEntry, PackageMessage
from packhorse.wire.package_codec import encode_package

NOW = 1_700_000_000_000


def package_record(offset: int, entry: PackageEntry, time_ms: int = NOW) -> Record:
    """Return the record of a package without its body."""
    headers = encode_package(PackageMessage(entry)).headers
    return Record("package", 0, offset, time_ms, None, headers, b"")
