"""`App`: a program of one's own that does jobs, hears events and takes part in the topology."""
