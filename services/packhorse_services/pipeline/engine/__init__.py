"""The Spark session, its jars and errors, and the databases beside it."""
