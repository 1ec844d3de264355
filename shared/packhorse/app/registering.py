"""What a program registers with its app, checked at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from packhorse.app.registered import Registered, RegisteredHandler
from packhorse.app.watching import heard_below
from packhorse.content.node import check_path
from packhorse.errors import Permanent
from packhorse.jobs.consumer import Consumer, InvalidConsumer, require_consumer
from packhorse.jobs.consumers import Consumers
from packhorse.jobs.content_changes.change import TOPICS
from packhorse.jobs.content_changes.watches import ContentWatch
from packhorse.jobs.events.delivery import Handler
from packhorse.jobs.filters import Template
from packhorse.jobs.names import require_name, require_topic
from packhorse.jobs.queue import QueueConfiguration, QueueType
from packhorse.jobs.scheduling.definition import JobAction, ScheduleDefinition, require_schedule
from packhorse.jobs.scheduling.timing import Cron, Every, When
from packhorse.topology.listeners import Listener

ConsumerT = TypeVar("ConsumerT", bound=Consumer)
HandlerT = TypeVar("HandlerT", bound=Handler)
ListenerT = TypeVar("ListenerT", bound=Listener)


class Registering:
    """The decorators of an app; what they take counts from the next time it runs."""

    def __init__(self, name: str) -> None:
        self.name = require_name(name, "app")
        self._registered = Registered(name)

    def consumer(
        self,
        topic: str,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        time_zone: str = "UTC",
        properties: Mapping[str, Any] | None = None,
        content: str | Sequence[str] = (),
    ) -> Callable[[ConsumerT], ConsumerT]:
        """Let the function below do the jobs of a topic or pattern (`images/*`, `images/**`).

        It takes the job, and where it wants more than that the context: `def f(job, context)`.
        With `cron` (five fields, by the clocks of `time_zone`) or `every` (a timedelta, or seconds)
        such a job is given at these moments, once in the cluster, with `properties`, unless the one
        before it is not done. With `content` it is given for each change of nodes at and below
        these paths (`change`, `paths`, `deep_paths`); for those of some types see `watch`. Raises
        `InvalidConsumer` for an `async def` and for a topic's second consumer, `InvalidName`,
        `InvalidSchedule`.
        """
        if (when := _when(cron, every, time_zone)) is not None:
            self._schedule(when, JobAction(require_topic(topic), properties or {}))
        if content:
            self.watch(topic, *((content,) if isinstance(content, str) else content))

        def register(consumer: ConsumerT) -> ConsumerT:
            self._consume(topic, consumer)
            return consumer

        return register

    def _consume(self, topic: str, consumer: Consumer) -> None:
        if any(topic == taken for taken, _ in self._registered.consumers):
            raise InvalidConsumer(f"the app has a consumer of {topic} already")
        Consumers().add(topic, consumer)
        self._registered.consumers.append((topic, consumer))

    def _schedule(self, when: When, action: JobAction) -> None:
        name = self._name_for(action.topic)
        definition = ScheduleDefinition(name, when, action, concurrent=False)
        self._registered.schedules.append(require_schedule(definition))

    def on_event(
        self,
        *patterns: str,
        where: Mapping[str, Any] | Sequence[Template] = (),
        gaps: bool = False,
    ) -> Callable[[HandlerT], HandlerT]:
        """Let the function below hear the events whose topics and properties fit.

        `where` has conditions such as `{">=size": 10}`; of several mappings one must match. With
        `gaps` it also hears when it has missed events, whatever they were: an event of the topic
        `packhorse/event/GAP`, whose `reason` is `slow` with the number that was `lost`, or `pruned`
        with the moment `since` when the program had heard all.
        """
        templates = (where,) if isinstance(where, Mapping) else tuple(where)

        def register(handler: HandlerT) -> HandlerT:
            require_consumer(handler)
            self._registered.handlers.append(RegisteredHandler(patterns, handler, templates, gaps))
            return handler

        return register

    def watch(self, topic: str, *roots: str, types: Sequence[str] = ()) -> None:
        """Let each change of nodes at and below some paths be a job of a topic; it lasts.

        With `types` that is so for nodes of these types, and for subtrees with such a node; what is
        removed has no type any more, and counts always.
        """
        watch = ContentWatch(self._name_for(require_topic(topic)), roots, topic, types)
        self._watch(watch)

    def on_content(self, *roots: str, types: Sequence[str] = ()) -> Callable[[HandlerT], HandlerT]:
        """Let the function below hear of each change of nodes at and below some paths.

        It hears an event of `packhorse/content/*` on every instance; what one instance has to do,
        and again until it has succeeded, is a `consumer` with `content=`. `types` are as those of
        `watch`. The watch lasts.
        """

        def register(handler: HandlerT) -> HandlerT:
            require_consumer(handler)
            name = getattr(handler, "__name__", type(handler).__name__)
            watch = ContentWatch(self._name_for(name), roots, types=types)
            self._watch(watch)
            heard = heard_below(roots, handler, watch.name if types else None)
            self._registered.handlers.append(RegisteredHandler((TOPICS,), heard))
            return handler

        return register

    def _watch(self, watch: ContentWatch) -> None:
        require_name(watch.name, "watch")
        for root in watch.roots:
            check_path(root)
        watches = self._registered.watches
        before = next((one for one in watches if one.name == watch.name), None)
        if before is not None:  # functions of one name share a watch
            if set(before.types) != set(watch.types):
                raise Permanent(f"{watch.name} watches other types already; use another name")
            watches.remove(before)
            roots = sorted({*before.roots, *watch.roots})
            watch = replace(watch, roots=roots, job_topic=watch.job_topic or before.job_topic)
        watches.append(watch)

    def _name_for(self, what: str) -> str:
        return f"{self.name}.{what.replace('/', '.')}"

    def on_topology(self, listener: ListenerT) -> ListenerT:
        """Let a function hear of who joins, who leaves and who leads; may be a decorator."""
        require_consumer(listener)
        self._registered.listeners.append(listener)
        return listener

    def queue(self, name: str, *patterns: str, ordered: bool = False, **settings: Any) -> None:
        """Declare the queue of some topics; one that is there, and changed since, stays.

        `settings` are those of `QueueConfiguration`: `max_parallel`, `max_retries`, `timeout_s` …
        Raises `InvalidQueue`, `InvalidName`.
        """
        kind = QueueType.ORDERED if ordered else QueueType.UNORDERED
        self._registered.queues.append(
            QueueConfiguration(name, patterns, **{"type": kind, **settings})
        )


def _when(cron: str | None, every: timedelta | float | None, time_zone: str) -> When | None:
    if cron is not None and every is not None:
        raise Permanent("a consumer is given jobs by cron= or by every=, not by both")
    if cron is not None:
        return Cron(cron, time_zone)
    if every is None:
        return None
    return Every(every if isinstance(every, timedelta) else timedelta(seconds=every))
