"""The guard that every call of a provider passes."""
