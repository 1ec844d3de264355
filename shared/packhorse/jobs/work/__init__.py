"""The worker of a process: what claims jobs, runs their consumers, and keeps its lease."""
