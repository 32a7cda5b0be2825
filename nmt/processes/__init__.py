"""Worker processes, which end when their parent ends."""
