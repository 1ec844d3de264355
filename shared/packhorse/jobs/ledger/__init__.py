"""Jobs as people see them: found, counted, stopped, tried again, removed, forgotten."""
