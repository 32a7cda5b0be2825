"""What GET /metrics shows."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
REQUESTS = Counter("nmt_requests", "Requests that were answered.", ["route", "status"])
SECONDS = Histogram("nmt_request_seconds", "Time to the answer.", ["route"], buckets=_SECONDS)
BATCHES = Histogram("nmt_batch_sentences", "Sentences of a batch.", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256))
WAITING = Gauge("nmt_waiting_sentences", "Sentences in the queue.")
