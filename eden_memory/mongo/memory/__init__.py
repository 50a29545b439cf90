"""Memory as documents: facts, reflections, blobs, snapshots, and what is forgotten."""
