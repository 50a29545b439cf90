"""Two memories compared by meaning."""
