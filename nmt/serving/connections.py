"""Limits the time and the size of the head of a request, and the time to take an answer. Uvicorn has no such limits."""

from asyncio import BaseTransport, TimerHandle

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
# How long a client may take to read what is sent before it is cut off. Until then it would keep the server from ending.
_READING_SECONDS = 300.0
_MOST_HEAD_BYTES = 65_536


class Connection(HttpToolsProtocol):
    """A connection that is closed if the head of a request is too large, or if the client sends or reads too slowly."""

    _timer: TimerHandle | None = None
    _reading: TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: BaseTransport) -> None:
        """Waits for the first head."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops waiting."""
        self._stop_timer()
        self._stop_reading_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Waits until the client has read what was sent."""
        super().pause_writing()
        self._stop_reading_timer()
        self._reading = self.loop.call_later(_READING_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stops waiting for the client."""
        self._stop_reading_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Reads a part of a request."""
        super().data_received(data)
        if self._timer is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Waits for the rest of the head."""
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stops waiting."""
        self._stop_timer()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Waits for the next head unless it has come. Uvicorn stops waiting at any byte, even in an empty line."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._expect_head()

    def _expect_head(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self.transport is not None:
            self.transport.close()

    def _stop_timer(self) -> None:
        self._head_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
