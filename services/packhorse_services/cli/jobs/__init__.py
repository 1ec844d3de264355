"""`packhorse … job`, and following one."""
