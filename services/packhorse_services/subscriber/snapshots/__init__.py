"""Beginning with a snapshot: the whole content and every lane's position, in one transaction."""
