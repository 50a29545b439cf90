"""Namespaces in MongoDB: made, sized, compared, dropped."""
