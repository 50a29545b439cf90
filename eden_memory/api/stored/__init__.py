"""What is stored of the scopes that may be seen: lists, histories, numbers, exports."""
