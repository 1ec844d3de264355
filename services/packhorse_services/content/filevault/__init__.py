"""FileVault content packages: `jcr_root`, docview XML and `filter.xml`, read and written."""
