"""Facts, reflections, blobs, snapshots: projection, stores, limits."""
