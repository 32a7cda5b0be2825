"""Draws the pages and the terminal of a run of quickstart.sh; see screenshots.sh.

python recipes/screenshots.py RUN OUT MODEL
"""

import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI, TerminalTheme
from rich.text import Text

SOURCE = "The old bridge is closed, so we will take the train to the coast.\nTickets are sold at the station."
# The word whose alternatives are shown, by its number in the translation.
WORD = 7
LIGHT = TerminalTheme((255, 255, 255), (36, 41, 47), [(36, 41, 47)] * 8)
THEMES = {"light": LIGHT, "dark": MONOKAI}
COLUMNS = 100
# The lines of the log that the terminal shows.
SHOWN = re.compile(
    r"== nmt (?:preprocess|train .*400$|generate|score)|train: |vocabulary: |validation at|source  |output  |BLEU "
)


def main(run: Path, output: Path, model: str) -> None:
    output.mkdir(parents=True, exist_ok=True)
    lines = list(terminal_lines(run))
    for name, theme in THEMES.items():
        (output / f"terminal-{name}.svg").write_text(terminal(lines, theme), encoding="utf-8")
    with sync_playwright() as playwright, served(model) as address:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in THEMES:
            service = browser.new_page(viewport={"width": 900, "height": 520}, color_scheme=name)
            service.goto(address)
            service.fill("#source", SOURCE)
            service.wait_for_selector("#n-best li", state="attached")
            words = service.locator("#translation .word")
            words.nth(WORD).click()
            service.wait_for_selector("#alternatives button")
            save(service, output / f"page-{name}.png")
            report = browser.new_page(viewport={"width": 1000, "height": 600}, color_scheme=name)
            report.goto((run / "report.html").resolve().as_uri())
            report.evaluate("document.querySelector('figure').scrollIntoView()")
            save(report, output / f"report-{name}.png")


@contextmanager
def served(model: str) -> Iterator[str]:
    """Yields the address of a service of a model."""
    command = [sys.executable, "-m", "nmt", "serve", model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr
        try:
            lines = list[str]()
            for line in service.stderr:
                lines.append(line)
                if address := re.search(r"http://[\w.:]+", line):
                    break
            else:
                sys.exit("".join(lines))
            yield address[0]
        finally:
            service.terminate()


def save(page: Any, path: Path) -> None:
    """Writes what a page shows as a PNG of 64 colours."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def terminal_lines(run: Path) -> Iterator[str]:
    """Yields the commands and some of the output of the log, with short paths."""
    shown: dict[str, int] = {}
    for line in (run / "quickstart.log").read_text(encoding="utf-8").splitlines():
        line = line.replace(f"{run.resolve()}/", "").replace(f"{run}/", "")
        kind = SHOWN.match(line)
        if kind:
            shown[kind[0]] = shown.get(kind[0], 0) + 1
            if shown[kind[0]] <= 2 or line.startswith("validation at update 400"):
                # Times differ from run to run.
                yield re.sub(r"^== ", "$ ", re.sub(r" \(\d:\d\d:\d\d\)$", "", line))


def terminal(lines: list[str], theme: TerminalTheme) -> str:
    """Returns an SVG of lines in a terminal, which loads no font."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        text = Text(line, style="bold" if line.startswith("$ ") else "")
        text.truncate(COLUMNS, overflow="ellipsis")
        console.print(text)
    svg = console.export_svg(title="", theme=theme, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
