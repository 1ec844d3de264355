"""The console: where content is, and what an operator does about it, as pages for people."""
