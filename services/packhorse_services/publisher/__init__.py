"""The publisher: takes distribution requests, appends packages, shows queues."""
