"""The data pipeline on Spark: archive, measures, bulk distribution, snapshots, audit, sweep."""
