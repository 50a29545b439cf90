"""What every call of a provider goes through."""
