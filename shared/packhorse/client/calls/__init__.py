"""What a client can be asked for, as operations without I/O, by what they are about."""
