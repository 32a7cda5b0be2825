"""Writes the model card and the page of a finished run of corpus_to_service.sh.

    python recipes/service_card.py RUN SOURCE_LANG TARGET_LANG LICENCE

LICENCE is the licence or attribution of the corpus, for the card; it may be empty.
"""

import argparse
import json
from html import escape
from pathlib import Path

from nmt.console import clock

MODELS = {"teacher": "teacher, beam 4", "student": "student, greedy", "int8": "student, greedy, int8 in CTranslate2"}
PAGES = {
    "aligned.html": "the pairs of the documents",
    "clean.html": "the cleaned corpus",
    "filtered.html": "the filtered translations of the teacher",
    "training.html": "the trainings",
}

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 24px auto; padding: 0 14px; max-width: 900px }
pre { overflow-x: auto }
td { padding: 2px 16px 2px 0 }
tr:first-child { font-weight: 600 }
"""


def speed_of(path: Path) -> float:
    """Returns sentences a second."""
    report = json.loads(path.read_text(encoding="utf-8"))
    return float(report["speed"] if "speed" in report else report["figures"]["speed"]["median"])


def size_of(path: Path) -> float:
    """Returns the size of a file or folder in MB."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def tables(run: Path) -> dict[str, list[tuple[str, ...]]]:
    """Returns the rows of each table by its title; the first row is the head."""
    stages = [line.split("\t") for line in (run / "stages.tsv").read_text().splitlines()]
    files = {"teacher": run / "teacher" / "average.safetensors", "student": run / "student" / "average.safetensors"}
    speeds = {name: speed_of(run / f"{name}.speed") for name in MODELS}
    return {
        "Speed and size": [
            ("model", "sentences a second on one core", "against the teacher", "MB"),
            *(
                (words, f"{speeds[name]:,.0f}", f"{speeds[name] / speeds['teacher']:.1f}",
                 f"{size_of(files.get(name, run / 'int8')):.1f}")
                for name, words in MODELS.items()
            ),
        ],
        "Stages": [("stage", "time of its last start"), *((name, clock(float(seconds))) for name, seconds in stages)],
    }  # fmt: skip


def main() -> None:
    """Writes README.md and index.html."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    for name in ("source_lang", "target_lang", "licence"):
        parser.add_argument(name)
    options = parser.parse_args()
    run, licence = options.run, options.licence
    title, tables_by_name = f"{options.source_lang} to {options.target_lang}", tables(run)
    texts = {"Scores on the test set": run / "scores", "Text as people type it": run / "robustness"}
    blocks = {name: path.read_text().strip() for name, path in texts.items()}
    card = [f"# {title}", "A small Transformer, trained with nmt on the translations of a larger one.", licence]
    page = [f"<h1>{escape(title)}</h1>", f"<p>{escape(licence)}</p>"]
    for name, text in blocks.items():
        card.append(f"## {name}\n\n```\n{text}\n```")
        page.append(f"<h2>{escape(name)}</h2><pre>{escape(text)}</pre>")
    for name, (head, *rows) in tables_by_name.items():
        lines = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows)]
        card.append(f"## {name}\n\n" + "\n".join(lines))
        cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in (head, *rows))
        page.append(f"<h2>{escape(name)}</h2><table>{cells}</table>")
    pages = {file: words for file, words in PAGES.items() if (run / file).exists()}
    links = "".join(f'<li><a href="{file}">{escape(words)}</a></li>' for file, words in pages.items())
    page.append(f"<h2>Pages</h2><ul>{links}</ul>")
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    )
    html = f"{head}<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(page)}</body></html>\n"
    (run / "README.md").write_text("\n\n".join(filter(None, card)) + "\n", encoding="utf-8")
    (run / "index.html").write_text(html, encoding="utf-8")


if __name__ == "__main__":
    main()
