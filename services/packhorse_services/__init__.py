"""The programs of packhorse; each package here is one service and imports no other."""
