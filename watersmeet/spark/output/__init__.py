"""Where results go: sinks, folders of files, Delta, catalog tables, and the `_id` of a result."""
