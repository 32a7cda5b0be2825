"""`nmt align` pairs the sentences of documents; the texts are of invented words, which have one translation each."""

import json
import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from checkpoints import eloquent_checkpoint, saved
from commands import failed, run

import nmt
from nmt.aligning.costs import Text

LANGS = ["--source-lang=fon", "--target-lang=mos"]  # whose texts no package identifies


def words(count: int, rng: random.Random) -> list[str]:
    return ["".join(rng.choices("abdefgiklmnorstuz", k=rng.randint(4, 9))) for _ in range(count)]


def texts(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Returns sentences and their translations, in the order of their words."""
    rng = random.Random(seed)
    vocabulary = list(zip(words(150, rng), words(150, rng), strict=True))
    sentences = [rng.choices(vocabulary, k=rng.randint(5, 15)) for _ in range(count)]
    return [(" ".join(s for s, _ in each).capitalize() + ".", " ".join(t for _, t in each) + ".") for each in sentences]


@pytest.mark.parametrize("line, expected", [
    ("Été 4006381333931", ["ete", "4006381333931"]), ("किताबें पढ़ो", ["किताब", "पढ़ो"]), ("がか", ["が", "か"]),
    ("대한민국 대한항공", ["대한민국", "대한항공"]),
])  # fmt: skip
def test_words_of_every_script_are_compared_by_their_first_letters(line: str, expected: list[str]) -> None:
    assert Text([line]).types == [unicodedata.normalize("NFC", word) for word in expected]


def damaged(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str], set[tuple[str, str]]]:
    """Returns the lines of two documents, and the places that belong together.

    Of every twenty pairs, one lacks the source, one lacks the target, and one has two lines joined on one side.
    """
    source, target, gold = list[str](), list[str](), set[tuple[str, str]]()
    for i, (a, b) in enumerate(pairs):
        source += [a] * (i % 20 != 6)
        if i % 20 == 12:
            target[-1] += f" {b}"
            gold.remove((f"{len(source) - 1}", f"{len(target)}"))
            gold.add((f"{len(source) - 1}-{len(source)}", f"{len(target)}"))
            continue
        target += [b] * (i % 20 != 16)
        if i % 20 not in (6, 16):
            gold.add((f"{len(source)}", f"{len(target)}"))
    return source, target, gold


def write(folder: Path, count: int = 40, name: str = "x.{}.txt", seed: int = 0) -> set[tuple[str, str]]:
    source, target, gold = damaged(texts(count, seed))
    for lang, lines in (("fon", source), ("mos", target)):
        path = folder / name.format(lang)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    return gold


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_sentences_are_paired_by_words_that_the_texts_teach(here: Path) -> None:
    gold = write(here, 200)
    done = run("align", "x.fon.txt", "x.mos.txt", *LANGS, "--output=out.tsv")
    header, *rows = table(here / "out.tsv")
    assert header == ["fon", "mos", "score", "source place", "target place"]
    pairs = {(row[3], row[4]) for row in rows}
    assert len(pairs & gold) > 0.95 * max(len(pairs), len(gold))
    lines = {name: (here / f"x.{name}.txt").read_text().splitlines() for name in ("fon", "mos")}
    assert all(row[0] == lines["fon"][int(row[3]) - 1] for row in rows if "-" not in row[3])
    assert all(0.5 < float(row[2]) <= 1 for row in rows if (row[3], row[4]) in gold)
    assert f"{len(rows)} pairs of 190 and 180 sentences" in done.stderr


def test_clean_reads_what_align_writes_and_its_score(here: Path) -> None:
    write(here)
    for name in ("out.tsv", "out.tmx", "out"):
        run("align", "x.fon.txt", "x.mos.txt", *LANGS, f"--output={name}")
        clean = ["clean", *LANGS, "--max-other-language=1", f"--train={name}", f"--dest=clean-{name}"]
        run(*clean)
    assert len({(here / f"clean-{name}.fon").read_bytes() for name in ("out", "out.tsv", "out.tmx")}) == 1
    scores = sorted(float(row[2]) for row in table(here / "out.tsv")[1:])
    for name in ("out.tsv", "out.tmx"):
        run(*clean[:-2], f"--train={name}", f"--least-score={scores[10]}", "--dest=best")
        assert len((here / "best.mos").read_text().splitlines()) == len(scores) - 10
    assert "has no column score for --least-score" in failed(
        "clean", *LANGS, "--train=x.fon.txt", "--least-score=1", "--dest=y"
    )


def test_documents_of_folders_belong_together_by_name(here: Path) -> None:
    """A document that cannot be aligned keeps none of the others from the corpus."""
    for seed, name in enumerate(("in/one.{}.txt", "in/{}/deep/two.txt", "in/three_{}.txt")):
        write(here, 40, name, seed)
    for name in ("alone.fon.txt", "none.txt", "scan.PDF"):
        (here / "in" / name).write_text("a\n")
    said = " ".join(run("align", "in", "in", *LANGS, "--output=all.tsv").stderr.split())
    assert "1 document without a partner: in/alone.fon.txt" in said
    assert "1 document left out, whose names have no language, or that of another one: in/none.txt" in said
    assert "in: files of other formats are left out: 1 .pdf" in said and "align: 3 document pairs" in said
    counts = [len(table(here / "all.tsv")) - 1]
    (here / "in/three_mos.txt").write_text("\n")
    line = failed("align", "in", "in", *LANGS, "--output=some.tsv")
    assert "1 of 3 pairs of documents cannot be aligned (in/three_mos.txt has no sentences" in line
    assert "the others are in some.tsv" in line
    assert len(nmt.align("in", "in", source_lang="fon", target_lang="mos")) == len(table(here / "some.tsv")) - 1
    counts.append(len(table(here / "some.tsv")) - 1)
    assert counts[0] * 2 / 3 - 5 < counts[1] < counts[0] * 2 / 3 + 5
    assert not list(here.glob("*.unfinished"))


def test_equal_names_of_two_folders_belong_together(here: Path) -> None:
    for seed, name in enumerate(("{}/log-fon.txt", "{}/x.mos.txt")):
        write(here, 40, name, seed)
    run("align", "fon", "mos", *LANGS, "--output=all.tsv")
    assert len(table(here / "all.tsv")) > 60
    write(here, 40, "in/x.{}.txt")
    assert "left out" not in run("align", "in", "./in/../in", *LANGS, "--output=one.tsv").stderr


def test_what_a_document_does_not_give_is_said(here: Path) -> None:
    write(here)
    for lang in ("fon", "mos"):
        cues = (here / f"x.{lang}.txt").read_text().splitlines()
        times = [f"00:00:{i:02}.000 --> 00:00:{i:02}.900\n{cue}\n" for i, cue in enumerate(cues)]
        (here / f"y.{lang}.vtt").write_text("WEBVTT\n\n" + "\n".join([*times, "alone\n"] if lang == "fon" else times))
    said = " ".join(run("align", "y.fon.vtt", "y.mos.vtt", *LANGS, "--output=y.tsv").stderr.split())
    assert "y.fon.vtt: not read: 1 passage from line" in said and "y.mos.vtt: not read" not in said
    assert re.search(r"pairs of \d+ and \d+ sentences; \d and \d have no partner", said)


def test_spaces_that_are_not_broken_stay(here: Path) -> None:
    pairs = texts(40)
    (here / "x.fon.txt").write_text("".join(f"{a.replace(' ', chr(0xA0), 1)}\n" for a, _ in pairs))
    (here / "x.mos.txt").write_text("".join(f"{b}\n" for _, b in pairs))
    run("align", "x.fon.txt", "x.mos.txt", *LANGS, "--output=x.tsv")
    assert all("\u00a0" in source for source, *_ in table(here / "x.tsv")[1:])


def test_work_resumes_behind_the_last_documents(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nmt.aligning import job

    for seed in range(3):
        write(here, 40, f"in/{seed}.{{}}.txt", seed)
    command = ["align", "in", "in", *LANGS, "--output=out.tsv"]
    run(*command)
    whole = (here / "out.tsv").read_bytes()
    aligned, real, most = list[str](), job.align, 2

    def align(sources: list[str], *others: Any) -> object:
        if len(aligned) == most:
            raise SystemExit(0)
        aligned.append(sources[0])
        return real(sources, *others)

    monkeypatch.setattr(job, "align", align)
    run(*command[:-1], "--output=again.tsv", code=75)
    most = 3
    run(*command[:-1], "--output=again.tsv")
    assert (here / "again.tsv").read_bytes() == whole
    assert len(aligned) == len(set(aligned)) == 3


def test_other_formats_have_passages_and_sentences(here: Path) -> None:
    pairs = texts(60)
    for lang, side in (("fon", 0), ("mos", 1)):
        sentences = [pair[side].capitalize() for pair in pairs]
        passages = [" ".join(sentences[i : i + 3]) for i in range(0, 60, 3)]
        (here / f"x.{lang}.html").write_text("".join(f"<p>{passage}</p>\n" for passage in passages))
    aligned_pairs = nmt.align("x.fon.html", here / "x.mos.html", source_lang="fon", target_lang="mos")
    assert [pair.source for pair in aligned_pairs] == [source for source, _ in pairs]
    assert [pair.target_place for pair in aligned_pairs] == [f"{i + 1}.{j + 1}" for i in range(20) for j in range(3)]


def unlike(here: Path) -> tuple[list[str], list[str], list[list[str]]]:
    """Writes two documents no word of which occurs twice, so that only translations can say what belongs together.

    Returns the lines of both languages, and the expected places.
    """
    rng = random.Random(1)
    sources, targets = ([" ".join(words(8, rng)) for _ in range(30)] for _ in range(2))
    kept = [i for i in range(30) if i not in (5, 6, 17)]
    (here / "x.en.txt").write_text("\n".join(sources))
    (here / "x.de.txt").write_text("\n".join(targets[i] for i in kept))
    return sources, targets, [[str(i + 1), str(n)] for n, i in enumerate(kept, 1)]


EN_DE = ["align", "x.en.txt", "x.de.txt", "--source-lang=en", "--target-lang=de", "--output=out.tsv"]


def test_a_model_translates_what_is_then_compared(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model translates, but into nothing that makes sense, so that the right translations take their place."""
    *sides, places = unlike(here)
    translations, real = dict(zip(*sides, strict=True)), nmt.Translator.translate

    def translate(translator: nmt.Translator, lines: list[str], *others: Any, **options: Any) -> list[str]:
        assert len(real(translator, lines, *others, **options)) == len(lines)
        return [translations[line] for line in lines]

    monkeypatch.setattr(nmt.Translator, "translate", translate)
    model = saved(eloquent_checkpoint(1), here / "model.safetensors")
    done = run(*EN_DE, f"--model={model}", "--device=cpu")
    assert [row[3:] for row in table(here / "out.tsv")[1:]] == places
    assert re.search(r"\d s of translation", done.stderr)


def test_a_memory_translates_what_is_then_compared(here: Path) -> None:
    """Similar sources count, too. What the memory lacks is compared as it is."""
    sources, targets, places = unlike(here)
    rows = [f"{source} end\t{target}" for source, target in zip(sources, targets, strict=True)]
    (here / "memory.tsv").write_text("\n".join(["en\tde", *rows[:10], *rows[11:]]))
    done = run(*EN_DE, "--memory=memory.tsv")
    assert [row[3:] for row in table(here / "out.tsv")[1:]] == places
    assert re.search(r"\d s of translation", done.stderr)


def test_paragraphs_in_another_order_are_reported(here: Path) -> None:
    pairs = texts(120)
    moved = [*pairs[:40], *pairs[43:80], *pairs[40:43], *pairs[80:]]
    (here / "x.fon.txt").write_text("\n".join(source for source, _ in pairs))
    (here / "x.mos.txt").write_text("\n".join(target for _, target in moved))
    done = run("align", "x.fon.txt", "x.mos.txt", *LANGS, "--output=out.tsv")
    expected = "3 sentences in another order, which no pair has: 41 with 78, 42 with 79, 43 with 80"
    assert expected in " ".join(done.stderr.split())
    places = [i + 1 for i in range(120) if i not in (40, 41, 42)]
    assert [row[3] for row in table(here / "out.tsv")[1:]] == list(map(str, places))


def test_decisions_of_the_page_replace_the_alignment(here: Path) -> None:
    write(here)
    command = ["align", "x.fon.txt", "x.mos.txt", *LANGS]
    run(*command, "--output=out.tsv", "--page=page.html")
    content = (here / "page.html").read_text().split('id="data">')[1].split("</script>")[0]
    (source, target, beads, *_), = json.loads(content)["alignments"]  # fmt: skip
    (a, _, c, _, _), (_, b, _, d, _), *others = beads
    decisions = [[a, b, c, d, 1], *others]
    (here / "decisions.json").write_text(json.dumps([[source[:2], target[:2], decisions]]))
    run(*command, "--output=decided.tsv", "--decisions=decisions.json")
    first, *rest = table(here / "decided.tsv")[1:]
    assert (first[2:], rest) == (["1.0000", "1-2", "1-2"], table(here / "out.tsv")[3:])
    lines = (here / "x.mos.txt").read_text().splitlines(keepends=True)
    for changed in ([*lines, "One more.\n"], [*lines[1:], lines[0]]):
        (here / "x.mos.txt").write_text("".join(changed))
        line = failed(*command, "--output=decided.tsv", "--decisions=decisions.json")
        assert "--decisions decisions.json is not about x.mos.txt as it is now" in line
    (here / "y.mos.txt").write_text("".join(lines))
    line = failed("align", "x.fon.txt", "y.mos.txt", *LANGS, "--output=y.tsv", "--decisions=decisions.json")
    assert "has no decisions about x.fon.txt and y.mos.txt" in line
    for damaged in ("{", json.dumps([[source[:2], target[:2], [["a", b, c, d, 1]]]])):
        (here / "decisions.json").write_text(damaged)
        assert "is not what a page of nmt align saves" in failed(*command, "--decisions=decisions.json")


@pytest.mark.parametrize("arguments, message", [
    ("empty.txt x.mos.txt", "empty.txt has no sentences; give a document with text"),
    ("x.fon.txt x.fon.txt", "x.fon.txt and x.fon.txt have the same text; give a document and its translation"),
    ("x.fon.txt short.txt", "have 2,933 characters and 7 characters, too different for a translation"),
    ("x.fon.txt other.txt", "do not look like translations of each other; give files that belong together"),
    ("x.fon.txt binary.txt", "binary.txt has a NUL byte"),
    ("x.fon.txt long.txt", "characters, too different for a translation"),
    ("x.fon.txt short.xlf", "short.xlf has its translations beside its text"),
    ("x.fon.txt short.po", "short.po has its translations beside its text; give it to nmt clean"),
    ("x.fon.txt x.mos.txt --embeddings", "pl, pt, ru, th, tr, zh, but not fon; leave it out"),
    ("x.fon.txt x.mos.txt --page=no/x.html", "no/x.html is in a folder that does not exist; make the folder first"),
    ("x.fon.txt image.png", "image.png has no known format"),
    ("x.fon.txt paper.pdf", "paper.pdf is a PDF, whose text has no order; take the document it is from"),
    ("x.fon.txt none.txt", "none.txt cannot be read (No such file or directory); check the path"),
    ("x.fon.txt folder", "x.fon.txt and folder, one is a folder, and the other is not; give two files or two folders"),
    ("folder folder", "no document in folder has the name of one in folder; call those that pair"),
    ("x.fon.txt x.mos.txt --output=x.csv", "--output x.csv names no corpus; give a file such as corpus.tsv or"),
    ("x.fon.txt x.mos.txt --device=cpu", "--device and --precision are about --model, which is missing; leave"),
    ("short.fon short.mos --format=txt --output=short", "--output short.fon is the same file as the input short.fon"),
    ("x.fon.txt x.mos.txt --page=x.mos.txt", "--page x.mos.txt is the same file as the input x.mos.txt"),
    ("x.fon.txt x.mos.txt --memory=m.tsv --output=m.tsv", "--output m.tsv is the same file as the input m.tsv"),
    ("x.fon.txt x.mos.txt --format=text", "--format must be one of txt, md"),
    ("english.txt x.mos.txt --source-lang=de", "english.txt is in the language en, but must be in de"),
    ("x.fon.txt x.mos.txt --source-lang=mos", "--source-lang and --target-lang are both 'mos'; they must differ"),
])  # fmt: skip
def test_what_cannot_be_aligned_gets_a_sentence(here: Path, arguments: str, message: str) -> None:
    write(here)
    (here / "empty.txt").write_text("\n\n")
    for name in ("short.txt", "short.fon", "short.mos", "m.tsv"):
        (here / name).write_text("A line.\n")
    (here / "other.txt").write_text("\n".join(" ".join(words(i % 9 + 3, random.Random(i))) for i in range(38)))
    (here / "short.po").write_text('msgid "A line."\nmsgstr "Une ligne."\n')
    (here / "short.xlf").write_text("<xliff/>")
    (here / "paper.pdf").write_bytes(b"%PDF-1.7")
    (here / "binary.txt").write_bytes(bytes(200))
    (here / "long.txt").write_text("A line.\n" * 100_000)
    (here / "image.png").write_bytes(b"\x89PNG")
    (here / "folder").mkdir()
    (here / "english.txt").write_text("The weather is nice today, and we go for a walk in the park.\n" * 30)
    assert message in failed("align", *LANGS, *arguments.split())
    assert not list(here.glob("*.unfinished"))
