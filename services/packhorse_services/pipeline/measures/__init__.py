"""The measures: from the silver tables, by the hour, only the hours that changed."""
