"""Trains the rows of the paper's Table 3 on one data folder and prints them beside the paper's figures.

Every row is evaluated on the validation set as in the paper: with the perplexity per piece, and with the BLEU of beam
search (beam 4, alpha 0.6). The evaluation uses the last weights without averaging. table3.sh prepares the data.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.model.architectures import ARCHITECTURES, parameters
from nmt.training.records import MetricsFile


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: the row's name on the command line, and the name of its run folder.
        arch: the name of the architecture.
        change: what differs from base, in the notation of the paper's table.
        ppl, bleu, millions: the paper's perplexity, BLEU and millions of parameters.
        label_smoothing: the value of --label-smoothing.
        longer: how many times as many updates as base the row takes in the paper.
    """

    name: str
    arch: str
    change: str
    ppl: float
    bleu: float
    millions: int | None = None
    label_smoothing: float = 0.1
    longer: int = 1


ROWS = [
    Row("base", "transformer_base", "base", 4.92, 25.8, 65),
    Row("a_h1", "table3_a_h1", "(A) h 1, d_k = d_v 512", 5.29, 24.9),
    Row("a_h4", "table3_a_h4", "(A) h 4, d_k = d_v 128", 5.00, 25.5),
    Row("a_h16", "table3_a_h16", "(A) h 16, d_k = d_v 32", 4.91, 25.8),
    Row("a_h32", "table3_a_h32", "(A) h 32, d_k = d_v 16", 5.01, 25.4),
    Row("b_dk16", "table3_b_dk16", "(B) d_k 16", 5.16, 25.1, 58),
    Row("b_dk32", "table3_b_dk32", "(B) d_k 32", 5.01, 25.4, 60),
    Row("c_n2", "table3_c_n2", "(C) N 2", 6.11, 23.7, 36),
    Row("c_n4", "table3_c_n4", "(C) N 4", 5.19, 25.3, 50),
    Row("c_n8", "table3_c_n8", "(C) N 8", 4.88, 25.5, 80),
    Row("c_dmodel256", "table3_c_dmodel256", "(C) d_model 256, d_k = d_v 32", 5.75, 24.5, 28),
    Row("c_dmodel1024", "table3_c_dmodel1024", "(C) d_model 1024, d_k = d_v 128", 4.66, 26.0, 168),
    Row("c_dff1024", "table3_c_dff1024", "(C) d_ff 1024", 5.12, 25.4, 53),
    Row("c_dff4096", "table3_c_dff4096", "(C) d_ff 4096", 4.75, 26.2, 90),
    Row("d_dropout0.0", "table3_d_dropout0.0", "(D) P_drop 0.0", 5.77, 24.6),
    Row("d_dropout0.2", "table3_d_dropout0.2", "(D) P_drop 0.2", 4.95, 25.5),
    Row("d_smoothing0.0", "transformer_base", "(D) label smoothing 0.0", 4.67, 25.3, label_smoothing=0.0),
    Row("d_smoothing0.2", "transformer_base", "(D) label smoothing 0.2", 5.47, 25.7, label_smoothing=0.2),
    Row("e_learned", "table3_e_learned", "(E) learned positions", 4.92, 25.7),
    Row("big", "transformer_big", "big", 4.33, 26.4, 213, longer=3),
]


@dataclass(frozen=True)
class Budget:
    """The size of the models and of their training.

    Attributes:
        width: divisor of d_model, d_ff, d_k and d_v.
        depth: divisor of the number of layers.
        batch_tokens: source tokens, and as many target tokens, in an update.
        warmup: updates in which the learning rate rises.
        longer: whether big trains for three times as many updates, as in the paper.
    """

    width: int
    depth: int
    updates: int
    batch_tokens: int
    warmup: int
    longer: bool

    def updates_of(self, row: Row) -> int:
        return self.updates * (row.longer if self.longer else 1)

    def scaled(self, config: ModelConfig) -> ModelConfig:
        widths = {name: getattr(config, name) // self.width for name in ("d_model", "d_ff", "d_k", "d_v")}
        depths = {name: getattr(config, name) // self.depth for name in ("encoder_layers", "decoder_layers")}
        return replace(config, **widths, **depths)


PAPER = Budget(width=1, depth=1, updates=100_000, batch_tokens=25_000, warmup=4000, longer=True)
SMALL = Budget(width=4, depth=2, updates=1000, batch_tokens=2500, warmup=400, longer=False)
# Options of nmt train that the row or the budget sets.
FIXED = {"--arch", "--save-dir", "--valid-metric", "--max-updates", "--valid-updates", "--keep-checkpoints"}
FIXED |= {"--batch-tokens", "--warmup-updates", "--label-smoothing"}


def train(row: Row, data: Path, folder: Path, budget: Budget, extra: list[str]) -> dict[str, float]:
    """Trains a row until its last update, resuming earlier work, and returns its validation metrics."""
    updates = budget.updates_of(row)
    registered = ARCHITECTURES[row.arch]
    changes = budget.scaled(registered).changed_from(registered.to_dict())
    options = {
        "--max-updates": updates,
        "--valid-updates": updates,
        "--batch-tokens": budget.batch_tokens,
        "--warmup-updates": budget.warmup,
        "--label-smoothing": row.label_smoothing,
        "--keep-checkpoints": 1,
    } | {flag_name(name): value for name, _, value in changes}
    flags = [f"{name}={value}" for name, value in options.items()]
    flags += ["--valid-metric=bleu", "--valid-metric=paper-bleu"]
    flags += (
        ["--device=cuda"] if budget.width == PAPER.width else []
    )  # an option of the user comes later and has precedence
    command = [
        sys.executable,
        "-m",
        "nmt",
        "train",
        str(data),
        f"--arch={row.arch}",
        f"--save-dir={folder}",
        *flags,
        *extra,
    ]
    print("==", *command, file=sys.stderr, flush=True)
    done = subprocess.run(command)  # if the row is finished, this only says so, and which options have changed
    if done.returncode:  # the command has printed its error
        sys.exit(done.returncode)
    metrics = folder / "metrics.jsonl"
    records = MetricsFile(metrics).records()
    validation = next((r for r in records if r["kind"] == "valid" and r["update"] == updates), None)
    if validation is None:
        sys.exit(f"error: {metrics} has no validation after update {updates}; remove {folder} and run this again")
    return validation


def as_markdown(table: list[dict[str, object]]) -> str:
    names = {
        "change": "row", "updates": "updates", "ppl": "PPL", "paper_bleu": "paper-BLEU", "bleu": "sacreBLEU",
        "parameters": "parameters", "published_ppl": "paper: PPL", "published_bleu": "BLEU",
        "published_parameters": "parameters",
    }  # fmt: skip
    lines = ["| " + " | ".join(names.values()) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in table]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="data folder that nmt preprocess wrote")
    parser.add_argument("run", type=Path, help="folder for the run folders of the rows, table3.md and table3.json")
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"rows to train, by default all: {' '.join(row.name for row in ROWS)}"
    )
    parser.add_argument("--paper", action="store_true", help="use the paper's sizes and 100,000 updates")
    parser.add_argument("--updates", type=int, help="updates of each row")
    options, extra = parser.parse_known_args()  # nmt train gets the other options
    fixed = [x for x in extra if x.split("=")[0] in FIXED]
    if fixed:
        parser.error(f"{fixed[0]} cannot be given, because this recipe sets it; leave it out")
    unknown = set(options.rows) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"{' '.join(unknown)} is not a row; name one of {' '.join(row.name for row in ROWS)}")
    budget = PAPER if options.paper else SMALL
    budget = replace(budget, updates=options.updates or budget.updates)
    try:
        vocabulary = len(DataFolder.open(options.data).codec.target)
    except NmtError as error:
        sys.exit(f"error: {error}")
    written = options.run / "table3.json"
    # Rows of earlier calls stay in the table.
    by_name = {row["name"]: row for row in json.loads(written.read_text("utf-8"))} if written.exists() else {}
    for row in ROWS:
        if options.rows and row.name not in options.rows:
            continue
        validation = train(row, options.data, options.run / row.name, budget, extra)
        trained = parameters(budget.scaled(ARCHITECTURES[row.arch]), vocabulary)
        by_name[row.name] = {
            "name": row.name,
            "change": row.change,
            "ppl": round(validation["ppl"], 2),
            "paper_bleu": round(validation["paper_bleu"], 2),
            "bleu": round(validation["bleu"], 2),
            "parameters": f"{trained / 1e6:.2f}M",
            "updates": budget.updates_of(row),
            "published_ppl": row.ppl,
            "published_bleu": row.bleu,
            "published_parameters": f"{row.millions}M" if row.millions else "",
        }
        table = [by_name[row.name] for row in ROWS if row.name in by_name]
        # Written after every row, so that an interrupted run keeps its results.
        written.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        (options.run / "table3.md").write_text(as_markdown(table), encoding="utf-8")
    print(as_markdown(table), end="")


if __name__ == "__main__":
    main()
