"""Files and the table of americasnlp.sh.

python recipes/americasnlp.py split TASK OUTPUT
python recipes/americasnlp.py table RUN
"""

import gzip
import json
import random
import sys
import unicodedata
from pathlib import Path
from statistics import mean

# The folder of each language in the task's repository.
FOLDERS = {
    "aym": "aymara",
    "cni": "ashaninka",
    "bzd": "bribri",
    "gn": "guarani",
    "oto": "hñähñu",
    "nah": "nahuatl",
    "tar": "raramuri",
    "shp": "shipibo_konibo",
    "hch": "wixarika",
}
# Scores of the official baseline, a model of fairseq for each language, on the development sets
# (baseline_system/README.md of the task's repository).
BASELINE_CHRF = dict(zip(FOLDERS, (18.84, 10.41, 7.72, 22.04, 5.95, 18.23, 4.58, 13.95, 12.61), strict=True))
BASELINE_BLEU = dict(zip(FOLDERS, (0.30, 0.03, 0.54, 3.26, 0.01, 0.33, 0.01, 0.34, 3.18), strict=True))
# Scores of the University of Helsinki's model B-0dev on the test sets (README.md of AmericasNLP 2023's repository). It
# is the task's best model that was not trained on the development sets. It had more text (Vázquez et al. 2021).
BEST_CHRF = dict(zip(FOLDERS, (28.3, 25.8, 16.5, 33.6, 14.7, 26.6, 18.4, 32.9, 30.4), strict=True))
HELD_OUT = 50  # pairs of each language


def read(task: Path, lang: str, split: str, side: str) -> list[str]:
    """Returns the lines of one side of a split. The files are those of the task, or such as dev.es-aym.aym."""
    not_tokenised = "_nontok" if (lang, split) == ("tar", "train") else ""
    names = [f"{split}.es-{lang}.{side}"]
    for form in ("NFC", "NFD"):  # of the name of Hñähñu
        names.append(f"{unicodedata.normalize(form, FOLDERS[lang])}-spanish/{split}{not_tokenised}.{side}")
    for name in names:
        for path in (task / name, task / "data" / name, task / f"{name}.gz"):
            if path.exists():
                content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
                return content.decode().rstrip("\n").split("\n")
    sys.exit(f"error: {task} has neither {names[0]} nor {names[1]}; set AMERICASNLP to the task's folder")


def write(prefix: Path, lang: str, pairs: list[tuple[str, str]]) -> None:
    """Writes PREFIX.es-LANG.es and PREFIX.es-LANG.LANG."""
    for side, lines in zip(("es", lang), zip(*pairs, strict=True), strict=True):
        Path(f"{prefix}.es-{lang}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def split(task: Path, output: Path) -> None:
    """Writes train, without copies of pairs and blank sides; valid, held out of it; and test, the development set."""
    output.mkdir(parents=True, exist_ok=True)
    for lang in FOLDERS:
        pairs = {
            part: list(zip(read(task, lang, part, "es"), read(task, lang, part, lang), strict=True))
            for part in ("train", "dev")
        }
        distinct = [pair for pair in dict.fromkeys(pairs["train"]) if all(side.strip() for side in pair)]
        held_out = set(random.Random(1).sample(distinct, min(HELD_OUT, len(distinct) // 10)))
        write(output / "train", lang, [pair for pair in distinct if pair not in held_out])
        write(output / "valid", lang, [pair for pair in distinct if pair in held_out])
        write(output / "test", lang, pairs["dev"])


def table(run: Path) -> None:
    """Prints chrF and BLEU of each language, those of the baseline, and chrF of the task's best system."""
    print(f"{'':6}{'chrF':>7}{'baseline':>10}{'best':>7}{'BLEU':>9}{'baseline':>10}")
    rows = []
    for lang in FOLDERS:
        scores = json.loads((run / "out" / f"{lang}.json").read_text())
        published = BASELINE_CHRF[lang], BEST_CHRF[lang], BASELINE_BLEU[lang]
        rows.append((scores["chrf"]["score"], *published[:2], scores["bleu"]["score"], published[2]))
        print("{:6}{:7.2f}{:10.2f}{:7.1f}{:9.2f}{:10.2f}".format(lang, *rows[-1]))
    print("{:6}{:7.2f}{:10.2f}{:7.1f}{:9.2f}{:10.2f}".format("mean", *map(mean, zip(*rows, strict=True))))
    print("\n".join(scores[metric]["signature"] for metric in ("chrf", "bleu")))


if __name__ == "__main__":
    if sys.argv[1] == "split":
        split(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        table(Path(sys.argv[2]))
