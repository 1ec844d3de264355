"""The process that Spark's Python workers are forked from; Spark starts it, once a kind of them.

Of what workers import, this imports before the forks what begins no thread. Which PySpark that is,
`sitecustomize` decides.
"""

if __name__ == "__main__":
    import pyspark.worker  # noqa: F401 - for the workers
    from pyspark.daemon import manager

    import packhorse_services.pipeline.settings  # noqa: F401 - for the workers

    manager()
