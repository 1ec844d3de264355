"""What every process needs: settings apart, everything between main and the use cases."""
