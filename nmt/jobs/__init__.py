"""Long work on the lines of files: cut into shards, done by processes or a cluster, and put together again."""
