"""The topology service: who is alive, who leads, and news of it, over HTTP and as a page."""
