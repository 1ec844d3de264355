"""The programs of packhorse; each package here is one room and imports no other."""
