"""Events for whoever is there: subscriptions in a process, and the way to every other instance."""
