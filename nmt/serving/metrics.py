"""What GET /metrics reports, in the format of Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "nmt_requests", "Requests that were answered.", ["route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "nmt_request_seconds", "Time to the answer.", ["route"], buckets=_SECONDS, registry=self.registry
        )
        self._batches = Histogram(
            "nmt_batch_sentences", "Sentences of a batch.", buckets=_SENTENCES, registry=self.registry
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def batch_started(self, sentences: int) -> None:
        """Counts a batch."""
        self._batches.observe(sentences)

    def watch_queue(self, waiting: Callable[[], int]) -> None:
        """Reports the number of sentences that wait."""
        gauge = Gauge("nmt_waiting_sentences", "Sentences in the queue.", registry=self.registry)
        gauge.set_function(waiting)

    def text(self) -> bytes:
        """Returns all metrics."""
        return generate_latest(self.registry)
