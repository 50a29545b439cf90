"""Reading the memory topics anew."""
