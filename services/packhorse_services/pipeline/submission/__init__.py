"""The pipeline on a cluster: the command that submits a task, and what is submitted."""
