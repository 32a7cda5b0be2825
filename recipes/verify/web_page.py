"""Types each line of standard input into an exported page in Chromium, and prints the translations that it shows.

    python web_page.py FOLDER

No request may leave this machine. At the end, the server stops, and the page must still open and translate. The times
go to standard error.
"""

import shutil
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Page, Request, sync_playwright

LIMIT_MS = 120_000


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder without logging."""

    def log_message(self, *_: Any) -> None:
        """Writes nothing."""


def refuse_strangers(request: Request, address: str) -> None:
    """Ends the program if a request goes to another server."""
    if not request.url.startswith((address, f"blob:{address}", "data:")):
        sys.exit(f"the page asks for {request.url}")


def open_page(page: Page, address: str) -> float:
    """Opens the page; returns the seconds until it is ready."""
    started = time.perf_counter()
    page.goto(address)
    page.locator("#status:text('Ready')").wait_for(timeout=LIMIT_MS)
    return time.perf_counter() - started


def translated(page: Page, line: str) -> tuple[str, str]:
    """Returns the translation of a line, and what the page says about its time."""
    page.fill("#source", "")
    page.locator("#status:text('Ready')").wait_for(timeout=LIMIT_MS)
    page.fill("#source", line)
    page.locator("#status:text('Translated')").wait_for(timeout=LIMIT_MS)
    return page.inner_text("#translation"), page.inner_text("#status")


def main(folder: str) -> None:
    """Serves the folder and translates."""
    lines = sys.stdin.read().splitlines()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        page.on("request", lambda request: refuse_strangers(request, address))
        page.on("pageerror", lambda error: sys.exit(f"the page fails: {error}"))
        print(f"ready after {open_page(page, address):.1f} s", file=sys.stderr)
        for line in lines:
            translation, said = translated(page, line)
            print(translation)
            print(f"{len(line.split())} words: {said}", file=sys.stderr)
        open_page(page, address)  # the second visit passes through offline.js
        server.shutdown()
        server.server_close()
        open_page(page, address)
        if lines and not translated(page, lines[0])[0]:
            sys.exit("the page does not translate without its server")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
