"""Two documents that translate each other become sentence pairs."""
