"""The routes of the topology service, the documents they give, and what they share."""
