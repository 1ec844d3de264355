"""The content API of the author, and the folder import."""
