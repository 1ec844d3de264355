"""Asks the services, and shows what they answer."""
