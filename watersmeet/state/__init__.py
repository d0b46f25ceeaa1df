"""State as immutable chunks of rows, named by manifests."""
