"""Reports: what the measures tables say, over HTTP and on the command line, without a JVM."""
