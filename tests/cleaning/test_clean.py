"""`nmt clean`: the files it writes, copies, held-out text, interruptions, the page, and wrong input."""

import gzip
import json
import math
import re
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

import forks
import pytest
from checkpoints import multilingual_codec, saved, small_checkpoint
from commands import failed, run, train
from conftest import write_pairs
from hypothesis import given
from hypothesis import strategies as st

from nmt.checkpoint import load_checkpoint, save_checkpoint
from nmt.cleaning.scores import dual_scores
from nmt.config import CleanConfig, RuntimeConfig
from nmt.data.measures import measure
from nmt.jobs.stream import Execution

OPTIONS = ["--source-lang=en", "--target-lang=de", "--max-other-language=1", "--workers=1"]
NOUNS = ["house", "tree", "garden", "river", "letter", "window", "teacher", "street"]
NOMEN = ["Haus", "Baum", "Garten", "Fluss", "Brief", "Fenster", "Lehrer", "Strasse"]
GOOD = [
    (f"Here is the {a} by the {b} of {c}.", f"Hier ist das {x} an dem {y} von {c}.")
    for a, x in zip(NOUNS, NOMEN, strict=True)
    for b, y in zip(NOUNS, NOMEN, strict=True)
    for c in ("Anna", "Otto")
]
BAD = [("Yes.", ""), ("See <b>it</b>.", "Sieh es dir an."), ("The year 1999.", "Das Jahr 1998.")]


def pairs_in(prefix: Path) -> list[tuple[str, str]]:
    sides = [Path(f"{prefix}.{lang}").read_text().splitlines() for lang in ("en", "de")]
    return list(zip(*sides, strict=True))


def clean(corpus: str | Path, dest: Path, *options: str) -> str:
    return run("clean", *OPTIONS, f"--train={corpus}", f"--dest={dest}", *options).stdout.decode()


def test_pairs_are_kept_in_order_and_nothing_vanishes(tmp_path: Path) -> None:
    name = "one" * 30  # only the names of corpora are cut in the table
    first, second = (
        write_pairs(tmp_path / name, [*GOOD[:50], *BAD]),
        write_pairs(tmp_path / "two", [BAD[1], *GOOD[50:]]),
    )
    with gzip.open(tmp_path / "two.en.gz", "wb") as file:
        file.write((tmp_path / "two.en").read_bytes())
    (tmp_path / "two.en").unlink()
    (tmp_path / f"{name}.de").write_bytes((tmp_path / f"{name}.de").read_bytes().replace(b"\n", b"\r\n"))
    said = clean(first, tmp_path / "new", f"--train={second}", f"--rejected={tmp_path}/rejected.tsv")
    assert pairs_in(tmp_path / "new") == GOOD
    rejected = [line.split("\t") for line in (tmp_path / "rejected.tsv").read_text().splitlines()]
    assert rejected == [["empty side", *BAD[0]], ["--markup", *BAD[1]], ["--numbers", *BAD[2]], ["--markup", *BAD[1]]]
    rows = [line.split() for line in said.splitlines()]
    assert ["--markup", "1", "1", "2", "1.5%"] in rows
    assert ["kept", "50", "78", "128", "97.0%"] in rows


def test_sentences_of_held_out_text_are_dropped(tmp_path: Path) -> None:
    pairs = [
        ("Two boats lie in the old harbour.", "Zwei Boote liegen im alten Hafen."),
        ("Nobody knew the answer.", "Niemand kannte die Antwort."),
        ("She reads the letters of her brother.", "Sie liest die Briefe ihres Bruders."),
        ("The bridge is closed in winter.", "Die Brücke ist im Winter gesperrt."),
    ]
    corpus = write_pairs(tmp_path / "corpus", pairs)
    others = [(pairs[0][0].upper(), "Etwas ganz anderes."), ("Something else.", "Er liest die Briefe ihres Bruders.")]
    held = write_pairs(tmp_path / "held", others)
    clean(corpus, tmp_path / "new", f"--exclude={held}")
    assert pairs_in(tmp_path / "new") == [pairs[1], pairs[3]]
    assert f"--dest {held}.en is the same file as the input" in failed(
        "clean", *OPTIONS, f"--train={corpus}", f"--exclude={held}", f"--dest={held}"
    )
    broken = write_pairs(tmp_path / "broken", [("The cafÃ© is here.", "Das Haus ist hier."), *GOOD[:2]])
    clean(broken, tmp_path / "mended", f"--exclude={write_pairs(tmp_path / 'same', pairs_in(broken)[:1])}")
    assert pairs_in(tmp_path / "mended") == GOOD[:2]


def test_text_in_one_language_is_cleaned_too(tmp_path: Path) -> None:
    (tmp_path / "text.en").write_text("\n".join([GOOD[0][0], "", GOOD[1][0], GOOD[0][0], "See <b>it</b>."]))
    files = [f"--train={tmp_path}/text", f"--dest={tmp_path}/new", f"--page={tmp_path}/page.html"]
    run("clean", "--source-lang=en", *OPTIONS[2:], *files)
    assert (tmp_path / "new.en").read_text() == f"{GOOD[0][0]}\n{GOOD[1][0]}\n"
    page = (tmp_path / "page.html").read_text()
    assert '"name":"--max-characters"' in page and '"name":"--max-ratio"' not in page  # which compares two sides


def test_the_dropped_pairs_are_written_even_if_none_is_kept(tmp_path: Path) -> None:
    corpus, rejected, page = write_pairs(tmp_path / "corpus", BAD), tmp_path / "rejected.tsv", tmp_path / "page.html"
    (tmp_path / "new.en").write_text("of an earlier command\n")
    options = [f"--train={corpus}", f"--dest={tmp_path}/new", f"--rejected={rejected}", f"--page={page}"]
    said = failed("clean", *OPTIONS, *options)
    assert f"so no corpus was written, only {rejected} and {page}; check the languages and the rules" in said
    assert [tuple(line.split("\t")[1:]) for line in rejected.read_text().splitlines()] == BAD
    assert '"read":3,"kept":0,"dropped":[1,1,1]' in page.read_text()
    assert (tmp_path / "new.en").read_text() == "of an earlier command\n"
    assert not [*tmp_path.glob("new.de"), *tmp_path.glob("*.unfinished")]


def test_swapped_languages_get_a_warning_and_standard_output_only_what_was_asked_for(tmp_path: Path) -> None:
    pair = "Der Hund und die Katze von dem Mann.", "The dog and the cat of that man."
    corpus = write_pairs(tmp_path / "corpus", [pair] * 10)
    done = run("clean", *OPTIONS, f"--train={corpus}", f"--dest={tmp_path}/new", "--rejected=-")
    said, rejected = done.stderr, done.stdout.decode().splitlines()
    assert rejected == ["\t".join(["--max-copies", *pair])] * 9 and "--max-copies      9  90.0%" in said
    assert f"warning: {corpus}.en looks like de, and {corpus}.de looks like en; check whether --source-lang" in said


def test_few_long_lines_are_judged_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Mock(wraps=measure)
    monkeypatch.setattr("nmt.cleaning.rules.measure", measured)
    corpus = write_pairs(tmp_path / "corpus", [*GOOD[:1], *[("a " * 100_000, "b " * 100_000)] * 12])
    clean(corpus, tmp_path / "new")
    assert max(sum(map(len, call.args[0])) for call in measured.call_args_list) < 1 << 20


SIMILAR = [(GOOD[0][0].upper().rstrip("."), f"„{GOOD[0][1]}“"), (GOOD[0][0], GOOD[1][1])]  # a copy, and none


@given(st.lists(st.sampled_from([*GOOD[:4], *BAD, *SIMILAR]), min_size=1), st.integers(1, 7), st.integers(0, 2))
def test_copies_are_kept_up_to_a_number_in_the_order_of_the_input_whatever_the_shards(
    pairs: list[tuple[str, str]], size: int, copies: int
) -> None:
    """The reference goes through the pairs one by one."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        seen: dict[str, int] = {}
        expected = []
        for pair in pairs:
            key = re.sub(r"\W", "", "|".join(pair).lower())
            if pair not in BAD:
                seen[key] = seen.get(key, 0) + 1
                if not copies or seen[key] <= copies:
                    expected.append(pair)
        write_pairs(folder / "corpus", pairs)
        options = [f"--shard-lines={size}", f"--max-copies={copies}", "--workers=1"]
        if not expected:
            arguments = [*OPTIONS, f"--train={folder}/corpus", f"--dest={folder}/new", *options]
            assert f"all {len(pairs)} pairs were dropped" in failed("clean", *arguments)
            return
        clean(folder / "corpus", folder / "new", *options)
        assert pairs_in(folder / "new") == expected


def test_a_job_that_was_interrupted_or_divided_gives_the_same_bytes(tmp_path: Path) -> None:
    corpus = write_pairs(tmp_path / "corpus", [*GOOD, *BAD, *GOOD])
    names = ("en", "de", "tsv", "html")

    def options(name: str) -> list[str]:
        files = [f"--rejected={tmp_path}/{name}.tsv", f"--page={tmp_path}/{name}.html", f"--dest={tmp_path}/{name}"]
        return [*OPTIONS, f"--train={corpus}", "--shard-lines=40", *files]

    run("clean", *options("whole"), "--workers=2")
    expected = [(tmp_path / f"whole.{name}").read_bytes() for name in names]
    death = forks.At("nmt.jobs.run.JobFolder.add", call=3)
    forks.run("clean", *options("killed"), "--workers=1", before=death, code=-signal.SIGKILL)
    assert not (tmp_path / "killed.en").exists()
    said = run("clean", *options("killed"), "--workers=1").stderr
    assert "resuming after 80" in said
    for part in (2, 1):
        run("clean", *options("parts"), f"--shard={part}/2")
    run("clean", *options("parts"), "--merge")
    for name in ("killed", "parts"):
        assert [(tmp_path / f"{name}.{ending}").read_bytes() for ending in names] == expected
    assert not list(tmp_path.glob("*.unfinished"))


def test_the_page_has_counts_and_examples(tmp_path: Path) -> None:
    long = ("word " * 100_000, "Wort " * 100_000)
    corpus = write_pairs(tmp_path / "corpus", [*GOOD, *BAD, ("</script><b>", "A & B <i>"), long])
    clean(corpus, tmp_path / "new", f"--page={tmp_path}/page.html")
    page = (tmp_path / "page.html").read_text()
    assert '"name":"--numbers","examples":[["The year 1999.","Das Jahr 1998."]]' in page
    assert '"read":133,"kept":128,"dropped":[1,1,1,2]' in page
    assert len(page) < 100_000
    assert "</script><b>" not in page


@pytest.fixture(scope="module")
def models(trained: Path) -> list[str]:
    """Returns checkpoints of a model from English to German and of one in the other direction."""
    prefix = trained / "train"
    backward = ["--source-lang=de", "--target-lang=en", f"--train={prefix}", f"--valid={trained}/valid"]
    run("preprocess", *backward, f"--dest={trained}/backward", "--vocab-size=330", "--workers=1")
    train(trained / "backward", trained / "back", "--max-updates=20")
    return [str(trained / "run" / "average.safetensors"), str(trained / "back" / "snapshot-00000020.safetensors")]


def scored(corpus: str | Path, dest: Path, models: list[str], *options: str) -> list[str]:
    fixed = ["--device=cpu", "--precision=fp32", "--min-letters=0", "--max-other-language=1", "--max-ratio=0"]
    return ["clean", *OPTIONS, *fixed, f"--train={corpus}", f"--dest={dest}", "--score-with", *models, *options]


def test_scores_keep_the_pairs_that_both_models_expect(trained: Path, models: list[str], tmp_path: Path) -> None:
    """The reference computes the formula of docs/cleaning.md from what nmt rescore finds."""
    corpus = write_pairs(tmp_path / "corpus", [*pairs_in(trained / "train")[:40], *BAD[1:]])
    clean(corpus, tmp_path / "ruled", "--min-letters=0", "--max-ratio=0")
    pairs = pairs_in(tmp_path / "ruled")
    entropies, ends = [], []
    for model, sides in zip(models, (("en", "de"), ("de", "en")), strict=True):
        files = [f"--{flag}={tmp_path}/ruled.{side}" for flag, side in zip(("source", "target"), sides, strict=True)]
        output = run("rescore", model, *files, "--output-format=jsonl", "--device=cpu", "--precision=fp32").stdout
        log_probs = [json.loads(line)["rescored"]["log_probs"] for line in output.splitlines()]
        entropies.append([-sum(pair_log_probs) / len(pair_log_probs) for pair_log_probs in log_probs])
        ends.append([-pair_log_probs[-1] for pair_log_probs in log_probs])
    ratios = [(max(map(len, pair)) + 10) / (min(map(len, pair)) + 10) for pair in pairs]
    measures = zip(*entropies, *ends, ratios, strict=True)
    scores = [math.exp(-max(f, b) - max(end_f, end_b) / 4) / r**4 for f, b, end_f, end_b, r in measures]
    limit = sorted(scores, reverse=True)[math.ceil(0.7 * len(scores)) - 1]
    expected = [pair for pair, score in zip(pairs, scores, strict=True) if score >= limit]
    options = [f"--rejected={tmp_path}/rejected.tsv", f"--page={tmp_path}/page.html"]
    said = run(*scored(corpus, tmp_path / "new", models, "--keep=0.7", *options)).stderr
    assert pairs_in(tmp_path / "new") == expected
    assert f"pairs with a score below {limit:.4g} are dropped" in said
    assert (tmp_path / "rejected.tsv").read_text().count("--keep\t") == len(pairs) - len(expected)
    assert '"name":"--keep","limit":0.' in (tmp_path / "page.html").read_text()
    run(*scored(corpus, tmp_path / "again", models, f"--min-score={limit - 1e-6}"))
    assert pairs_in(tmp_path / "again") == expected
    assert (
        "pairs with a score below 0 are dropped"
        in run(*scored(corpus, tmp_path / "all", models, "--min-score=0")).stderr
    )
    assert pairs_in(tmp_path / "all") == pairs


def test_a_model_of_several_languages_scores_both_ways(trained: Path, tmp_path: Path) -> None:
    several = str(saved(small_checkpoint(1, codec=multilingual_codec("both_sides")), tmp_path / "several.safetensors"))
    corpus = write_pairs(tmp_path / "corpus", pairs_in(trained / "train")[:20])
    run(*scored(corpus, tmp_path / "kept", [several, several], "--keep=1"))
    assert pairs_in(tmp_path / "kept") == pairs_in(corpus)
    both = [several, str(saved(small_checkpoint(1), tmp_path / "one.safetensors"))]
    message = failed(*scored(corpus, tmp_path / "refused", both, "--keep=1"))
    assert "one.safetensors translates en to de, but must translate de to en" in message


def test_scoring_that_was_killed_resumes(trained: Path, models: list[str], tmp_path: Path) -> None:
    corpus = write_pairs(tmp_path / "corpus", pairs_in(trained / "train")[:20])
    run(*scored(corpus, tmp_path / "whole", models, "--keep=0.5"))
    command = scored(corpus, tmp_path / "killed", models, "--keep=0.5")
    for _ in range(2):  # in the first direction, and then in the second
        forks.run(*command, before=forks.At("nmt.jobs.run.JobFolder.add", call=2), code=-signal.SIGKILL)
    run(*command)
    assert pairs_in(tmp_path / "killed") == pairs_in(tmp_path / "whole")
    assert not list(tmp_path.glob("*.unfinished"))
    sides = [f"{corpus}.{lang}" for lang in ("en", "de")]
    options: dict[str, Any] = {"train": (str(corpus),), "dest": "d", "score_with": tuple(models), "keep": 0.5}
    config = CleanConfig(source_lang="en", target_lang="de", **options)
    for precision in ("fp32", "bf16"):  # both directions are scored in the same way
        runtime = RuntimeConfig(device="cpu", precision=precision)
        dual_scores(config, sides, tmp_path, runtime, Execution(workers=1))
    assert [len(list(tmp_path.glob(f"{name}-*"))) for name in ("forward", "backward")] == [2, 2]


def test_a_model_that_cannot_score_is_named(trained: Path, models: list[str], tmp_path: Path) -> None:
    corpus, broken = write_pairs(tmp_path / "corpus", pairs_in(trained / "train")[:20]), tmp_path / "broken.safetensors"
    checkpoint = load_checkpoint(models[1])
    for weight in checkpoint.weights.values():
        weight.fill_(math.nan)
    save_checkpoint(checkpoint, broken)
    said = failed(*scored(corpus, tmp_path / "new", [models[0], str(broken)], "--keep=0.5"))
    assert f"--score-with {broken}: the model gives NaN probabilities; use another checkpoint" in said


def test_models_and_options_of_scores_that_do_not_fit_are_refused(models: list[str], tmp_path: Path) -> None:
    corpus = write_pairs(tmp_path / "corpus", GOOD)
    unscored = ["clean", *OPTIONS, f"--train={corpus}", f"--dest={tmp_path}/new"]
    for command, said in (
        ([*unscored, "--device=cpu"], "--device cpu needs --score-with; add it, or leave out --device"),
        (scored(corpus, tmp_path / "new", models[::-1], "--keep=0.5"), f"{models[1]} translates de to en, but must"),
        (scored(corpus, tmp_path / "new", models), f"--score-with {models[0]} needs --keep or --min-score"),
        (
            ["clean", *OPTIONS, f"--train={corpus}", f"--dest={tmp_path}/new", "--keep=0.5", "--min-score=0.5"],
            "--keep 0.5 needs --score-with; add it",
        ),
        (scored(corpus, tmp_path / "new", models, "--keep=0.5", "--merge"), "does not work with --merge; leave"),
        (scored(corpus, tmp_path / "new", ["x", "y"], "--keep=0.5"), "x does not exist"),
        (scored(corpus, tmp_path / "new", models, "--keep=0.5", "--min-letters=1"), "all 128 pairs were dropped"),
    ):
        assert said in failed(*command)
        assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("change, options, said", [
    ("short", [], "has 128 lines but {corpus}.de has 127, and line 6 is the first where one is three times as long"),
    ("nothing", ["--train={corpus}x"], "neither {corpus}x.en nor {corpus}x.en.gz exists"),
    ("nothing", ["--dest={corpus}.en/new"],
     "{corpus}.en/new.unfinished cannot be written (Not a directory); choose another output"),
    ("nothing", ["--target-lang=en"], "--source-lang and --target-lang are both 'en'; they must differ"),
    ("nothing", ["--dest={corpus}"],
     "--dest {corpus}.en is the same file as the input {corpus}.en; choose another file"),
    ("nothing", ["--page={corpus}.en"], "--page {corpus}.en is the same file as the input"),
    ("nothing", ["--rejected={folder}/new.de"], "--rejected {folder}/new.de is also named by --dest; give another"),
    ("nothing", ["--page={folder}/q", "--rejected={folder}/q"], "--page {folder}/q is also named by --rejected"),
    ("nothing", ["--page={folder}/no/q"], "is in a folder that does not exist; make the folder first"),
    ("nothing", ["--rejected={folder}/r.tsv.gz"], "names a compressed file, but it is written as text; leave out .gz"),
    ("nothing", ["--rejected="], "--rejected is empty; give a value or leave it out"),
    ("nothing", ["--dest={folder}/"], "names no file; give the name of a file"),
    ("empty", [], "there are no lines in {corpus}; give another --train"),
    ("device", [], "{corpus}.de is a pipe or a device, but a corpus is read several times; give a file"),
    ("nothing", ["--min-letters=1"], "(128 --min-letters), so no corpus was written; check the languages"),
    ("nothing", ["--exclude={corpus}"], "all 128 pairs were dropped (128 --exclude)"),
    ("binary", [], "{corpus}.de, line 2: byte 1 (0xff) is not UTF-8"),
    ("nothing", ["--min-letters=2"], "--min-letters must be at least 0 and at most 1, but is 2"),
])  # fmt: skip
def test_wrong_input_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, change: str, options: list[str], said: str
) -> None:
    corpus = write_pairs(tmp_path / "corpus", GOOD)
    text = (tmp_path / "corpus.de").read_text().splitlines(keepends=True)
    if change == "short":
        (tmp_path / "corpus.de").write_text("".join([*text[:5], "Ja.\n", *text[7:]]))
    if change == "empty":
        for lang in ("en", "de"):
            (tmp_path / f"corpus.{lang}").write_bytes(b"")
    if change == "device":
        (tmp_path / "corpus.de").unlink()
        (tmp_path / "corpus.de").symlink_to("/dev/null")
    if change == "binary":
        (tmp_path / "corpus.de").write_bytes(text[0].encode() + b"\xff\n" + "".join(text[2:]).encode())
    paths = sorted(tmp_path.iterdir())
    arguments = [*OPTIONS, f"--train={corpus}", f"--dest={tmp_path}/new", *options]
    message = failed("clean", *(argument.format(corpus=corpus, folder=tmp_path) for argument in arguments))
    assert said.format(corpus=corpus, folder=tmp_path) in message
    assert sorted(tmp_path.iterdir()) == paths
