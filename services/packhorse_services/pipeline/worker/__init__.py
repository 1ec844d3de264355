"""Tasks of the pipeline as jobs, at times that an operator sees and may change."""
