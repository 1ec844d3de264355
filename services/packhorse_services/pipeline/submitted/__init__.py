"""What runs on a cluster: `submit` hands it to `spark-submit`."""
