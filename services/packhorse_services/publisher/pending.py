"""A request on its way through the publisher, and what it has led to."""

from concurrent.futures import Future
from dataclasses import dataclass, field

from packhorse_services.publisher.distribute import DistributionRequest


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a request has led to. `offset` is None while the journal has not confirmed it."""

    package_id: str
    offset: int | None
    repeated: bool = False
    """Whether an earlier request with the same idempotency key made the package."""


@dataclass(eq=False, slots=True)
class Pending:
    """A request on its way. The package id is that of the last try; it may be committed."""

    request: DistributionRequest
    future: Future[Accepted] = field(default_factory=Future)
    package_id: str = ""
    committed: bool = False

    def answer(self, offset: int | None, *, package_id: str = "", repeated: bool = False) -> None:
        """Answer the request, once."""
        if not self.future.done():
            self.future.set_result(Accepted(package_id or self.package_id, offset, repeated))

    def fail(self, error: Exception) -> None:
        """Refuse the request, unless it is answered."""
        if not self.future.done():
            self.future.set_exception(error)
