"""What is not the project's subject: validation, batching, atomic files, progress, names."""
