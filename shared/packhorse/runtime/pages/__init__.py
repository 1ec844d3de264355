"""Pages for people: rendered by the service that they show, behind the same tokens as its API."""
