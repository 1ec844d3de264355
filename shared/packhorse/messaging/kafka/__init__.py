"""The journal on Apache Kafka; the only package that knows Kafka's client. Start with `journal`."""
