"""Jobs in the database: given, claimed, ended, rescued; every statement that changes one."""
