"""General utilities: validation, batching, registries, atomic files, progress, messages."""
