"""Memory anew: namespaces, and what makes two memories equal."""
