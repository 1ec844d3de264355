"""Pages of what programs do: jobs, schedules, tasks of the pipeline; and which programs live."""
