"""A real Kafka broker, from its published jars, for the tests and for developers."""
