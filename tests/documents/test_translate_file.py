"""`nmt translate-file` translates documents as a job."""

import re
import signal
from dataclasses import replace
from html import escape
from pathlib import Path

import forks
import pytest
from checkpoints import FP32, eloquent_checkpoint, saved, some_sentences, sure_checkpoint, translated_html
from commands import failed, run
from forks import At

from nmt import Translator
from nmt.config import SearchConfig
from nmt.documents.document import Document, ReadOptions, read_document

Words = list[str | Path]  # of a command
OPTIONS = ["--batch-tokens=64", "--precision=fp32", "--device=cpu", "--max-length-offset=3"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(eloquent_checkpoint(1), tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    return Translator.load(model, runtime=FP32)


def translated(translator: Translator, sentence: str) -> str:
    return translator.translate([sentence], SearchConfig(max_length_offset=3))[0]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Returns a folder with two documents and files that are none."""
    folder = tmp_path / "site"
    (folder / "inner").mkdir(parents=True)
    first, second = ("\n".join(some_sentences(30, seed)) for seed in (1, 2))
    (folder / "one.txt").write_text(first)
    (folder / "inner" / "two.TXT").write_text(f"{second}\n{first}\n")
    (folder / "image.png").write_bytes(b"\0")
    (folder / ".hidden.txt").write_text("few words")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def command(model: Path, site: Path, tmp_path: Path) -> Words:
    return ["translate-file", site, "--model", model, *OPTIONS, "--shard-lines=10", "--output", tmp_path / "out"]


def test_lines_of_text_are_translated_between_what_surrounds_them(
    model: Path, translator: Translator, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_bytes("\ufeffSome words. A few more!\r\n\r\n \tpieces \na few\r".encode())
    said = run("translate-file", tmp_path / "note.txt", "--model", model, *OPTIONS).stderr
    some, few, pieces, a_few = (translated(translator, s) for s in ("Some words.", "A few more!", "pieces", "a few"))
    expected = f"\ufeff{some} {few}\r\n\r\n \t{pieces} \n{a_few}\r"
    assert (tmp_path / "note.de.txt").read_bytes().decode() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["note.de.txt", "note.txt"]
    assert said.splitlines()[-1].split() == [str(tmp_path / "note.txt"), str(tmp_path / "note.de.txt"), "4"]


def test_the_translation_of_one_document_can_be_put_into_a_new_folder(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a\n[b].txt").write_bytes(b"Some words.\n")
    said = run("translate-file", tmp_path / "a\n[b].txt", "--output", f"{tmp_path}/new/", "--model", model, *OPTIONS)
    assert (tmp_path / "new" / "a\n[b].txt").is_file()
    assert r"a\n[b].txt" in said.stderr
    said = failed("translate-file", "-", "--format=txt", f"--output={tmp_path}/new", "--model", model, stdin=b"a")
    assert "is a folder, but standard input has no name; give a file" in said


def test_standard_streams(model: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"Some words.\n")
    run("translate-file", tmp_path / "note.txt", "--model", model, *OPTIONS)
    piped = run("translate-file", "-", "--format=txt", "--model", model, *OPTIONS, stdin=b"Some words.\n").stdout
    assert piped == (tmp_path / "note.de.txt").read_bytes()
    assert "standard input has no known format" in failed("translate-file", "-", "--model", model, stdin=b"a")


def test_a_sentence_in_several_documents_is_translated_once(command: Words, site: Path, tmp_path: Path) -> None:
    different = {line for path in site.rglob("[a-z]*.[tT]*") for line in path.read_text().splitlines()}
    assert f"translate: {len(different)} sentences" in run(*command).stderr
    outputs = tree(tmp_path / "out")
    assert outputs.keys() == {"one.txt", "inner/two.TXT"}
    assert outputs["one.txt"] in outputs["inner/two.TXT"]


def test_files_that_cannot_be_translated_do_not_stop_the_others(command: Words, site: Path, tmp_path: Path) -> None:
    run(*command[:-1], tmp_path / "expected")
    (site / "bad.txt").write_bytes(b"\xff")
    said = run(*command, site / "missing.txt", site / "image.png", code=1).stderr
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")
    assert "bad.txt is not UTF-8 at byte 0; convert it" in said
    assert "missing.txt cannot be read (No such file or directory); check the path" in said
    assert "image.png has no known format" in said
    assert said.splitlines()[-1] == "error: 3 of 5 files cannot be translated; the table says why"


def test_the_table_says_what_is_not_reached_and_where_no_text_is(command: Words, site: Path, tmp_path: Path) -> None:
    cue = "00:01.000 --> 00:02.000\n"
    (site / "notes.vtt").write_text("WEBVTT\n\nNOTE few words\n")
    (site / "torn.vtt").write_text(f"WEBVTT\n\n{cue}Few words\n\nmore words\n\n7\n{cue}\nA dog\n\nA cat\n")
    said = {line.split("  ")[0]: line for line in run(*command).stderr.splitlines()}
    assert (
        "3 passages from line 6 on stay as they are, because no times stand directly above" in said[f"{site}/torn.vtt"]
    )
    assert "no text was recognised; if the file has text, check" in said[f"{site}/notes.vtt"]
    assert said[f"{site}/one.txt"].split() == [f"{site}/one.txt", str(tmp_path / "out" / "one.txt"), "30"]
    assert tree(tmp_path / "out")["notes.vtt"] == (site / "notes.vtt").read_bytes()


@pytest.mark.parametrize("function", ["reader", "writer"])
def test_a_bug_in_one_document_does_not_harm_the_others(
    command: Words, site: Path, tmp_path: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*command[:-1], tmp_path / "expected")
    (site / "bad.txt").write_bytes(b"some words")

    def read_badly(data: bytes, form: str, options: ReadOptions) -> Document:
        document = read_document(data, form, options)
        if not options.name.endswith("bad.txt"):
            return document
        return replace(document, write=[].index) if function == "writer" else document.missing  # type: ignore

    monkeypatch.setattr("nmt.documents.sentences.read_document", read_badly)
    said = run(*command, code=1).stderr
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")
    assert "Traceback" in said
    assert "bad.txt cannot be translated because of a fault in nmt (" in said
    assert said.splitlines()[-1] == "error: 1 of 3 files cannot be translated; the table says why"


def test_an_interrupted_job_resumes(command: Words, tmp_path: Path) -> None:
    run(*command[:-1], tmp_path / "expected")
    out = tmp_path / "out"
    forks.run(*command, before=At("nmt.jobs.run.JobFolder.add", call=3, do=signal.SIGTERM, after=True), code=75)
    assert not out.exists()
    forks.run(*command, before=At("nmt.documents.translation.output_file", call=2), code=-signal.SIGKILL)
    assert list(tree(out)) == ["inner/two.TXT"]
    assert "translate:" not in run(*command).stderr
    assert tree(out) == tree(tmp_path / "expected")
    assert not list(tmp_path.glob("out.*"))


def test_parts_of_a_job_are_merged(command: Words, tmp_path: Path) -> None:
    run(*command[:-1], tmp_path / "expected")
    for part in ("--shard=1/2", "--shard=2/2"):
        run(*command, part)
        assert not (tmp_path / "out").exists()
    run(*command, "--merge")
    assert tree(tmp_path / "out") == tree(tmp_path / "expected")
    assert not list(tmp_path.glob("out.*"))


def test_a_changed_document_is_not_mixed_with_finished_work(command: Words, site: Path, tmp_path: Path) -> None:
    forks.run(*command, before=At("nmt.jobs.run.JobFolder.add", call=3, do=signal.SIGTERM, after=True), code=75)
    before = (site / "one.txt").read_text()
    (site / "one.txt").write_text("other words")
    said = failed(*command)
    assert "out.unfinished belongs to an unfinished job of another command" in said
    assert "the text of the documents was SHA-256" in said
    (site / "one.txt").write_text(before)
    run(*command)
    assert len(tree(tmp_path / "out")) == 2


def test_markup_is_put_where_the_words_are(trained: Path, tmp_path: Path) -> None:
    model = trained / "run" / "best.safetensors"
    page = '<html lang="en"><p title="Ba"><b>Ba</b> de ki lo</p><p>Mu {name}</p></html>'
    (tmp_path / "page.html").write_text(page)
    # The small model repeats pieces unless it is stopped.
    options = ["--max-length-offset=15", "--no-repeat-ngram=1", "--min-length=15", "--device=cpu", "--precision=fp32"]
    run("translate-file", tmp_path / "page.html", "--model", model, *options, "--workers=2")
    search = SearchConfig(max_length_offset=15, no_repeat_ngram=1, min_length=15)
    translator = Translator.load(model, runtime=FP32)
    title, body = (translated_html(translator, text, search) for text in ("Ba", page))
    expected = body.replace('title="Ba"', f'title="{escape(title)}"').replace('lang="en"', 'lang="de"')
    # The page is in ASCII and declares no encoding.
    assert (tmp_path / "page.de.html").read_bytes() == expected.encode("ascii", "xmlcharrefreplace")


def test_terms_of_a_glossary_are_used(model: Path, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("pieces\tlearn\n")
    (tmp_path / "note.txt").write_text("some pieces")
    run("translate-file", tmp_path / "note.txt", "--model", model, *OPTIONS, "--glossary", tmp_path / "terms")
    assert "learn" in (tmp_path / "note.de.txt").read_text()


def test_a_term_that_is_a_whole_passage_with_elements_is_translated_by_the_model(model: Path, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("some pieces\tzyx\n")
    (tmp_path / "note.html").write_text("<p>some <b>pieces</b></p><p>some pieces</p>")
    options = ["--glossary", tmp_path / "terms", *OPTIONS]
    run("translate-file", tmp_path / "note.html", "--model", model, *options)
    first, second = re.findall("<p>(.*?)</p>", (tmp_path / "note.de.html").read_text())
    html = run("generate", model, "--html", *options, stdin=b"some <b>pieces</b>").stdout.decode().strip()
    assert first == html != "zyx" == second


def test_sentences_that_suffer_from_terms_are_listed(tmp_path: Path) -> None:
    model = saved(sure_checkpoint(3), tmp_path / "model.safetensors")
    (tmp_path / "terms").write_text("pieces\tzyxzyxzyx\nwords\tWorte\n")
    (tmp_path / "note.txt").write_text("some pieces to learn from\nwords\nto learn")
    command = ["translate-file", tmp_path / "note.txt", "--model", model, *OPTIONS]
    done = run(*command, "--glossary", tmp_path / "terms")
    command += ["--output", tmp_path / "note.de.txt"]
    first, second, third = (tmp_path / "note.de.txt").read_text().splitlines()
    assert "zyxzyxzyx" in first and second == "Worte"
    (listed,) = (line.split() for line in done.stderr.splitlines() if line.split()[:1] == ["terms"])
    assert listed[:7] == ["terms", str(tmp_path / "note.txt"), "some", "pieces", "to", "learn", "from"]
    run(*command, "--glossary", tmp_path / "terms", "--glossary-fallback")
    assert "zyx" not in (tmp_path / "note.de.txt").read_text()
    run(*command)
    assert (tmp_path / "note.de.txt").read_text().splitlines()[2] == third


@pytest.mark.parametrize("arguments, said", [
    (["a.txt", "b.txt"], "several documents are translated into a folder, but --output is missing"),
    (["a.txt", "b.txt", "--output=a.txt"], "several documents are translated into a folder, but --output is a.txt"),
    (["a.txt", "-", "--output=out"], "several documents are translated into a folder, but - was given"),
    (["inner", "--output=inner/out"], "--output inner/out is in the folder inner, which is translated; choose another"),
    (["a.txt", "inner/a.txt", "--output=out"], "a.txt and inner/a.txt would both be written to out/a.txt"),
    (["a.txt", "--output=a.txt"], "--output a.txt is the same file as the input a.txt"),
    (["done.txt"], "done.de.txt exists already; give --output done.de.txt to replace it, or another file"),
    (["none", "--output=out"], "none has no documents; give files such as x.docx, or a folder with some"),
    (["a.txt", "--all"], "--all is about PO and XLIFF, but a.txt has none; leave it out"),
    (["a.txt", "--output=."], "--output ./a.txt is the same file as the input a.txt"),
    (["a.txt", "--output="], "--output is empty; give a value or leave it out"),
    (["a.txt", "--format=doc"], "--format must be one of txt, "),
    (["-", "--format=txt", "--shard=1/2"], "--shard needs files as input and as --output; give the names of files"),
    (["a.txt", "--keys=title"], "--keys chooses values of JSON, but a.txt has none; leave it out"),
    (["nothing.txt"], "nothing.txt cannot be read (No such file or directory); check the path"),
])  # fmt: skip
def test_wrong_commands(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("inner", "none"):
        (tmp_path / name).mkdir()
    for name in ("a.txt", "b.txt", "inner/a.txt", "done.txt", "done.de.txt"):
        (tmp_path / name).write_text("some words")
    before = tree(tmp_path)
    assert failed("translate-file", *arguments, "--model", model, *OPTIONS, stdin=b"a").startswith(f"error: {said}")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("option", ["--n-best=2", "--samples=2", "--alignments"])
def test_options_for_several_outputs_do_not_exist(option: str) -> None:
    said = run("translate-file", "a.txt", "--model=m", option, code=2).stderr
    assert f"No such option: {option.split('=')[0]}" in said


def test_an_engine_without_constraints_keeps_what_markup_must_keep(model: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>some <code>pieces</code> {name}")
    options = ["--engine=ctranslate2", "--device=cpu", "--max-length-offset=3"]
    run("translate-file", tmp_path / "page.html", "--model", model, *options)
    written = (tmp_path / "page.de.html").read_text()
    assert "<code>pieces</code>" in written
    assert "{name}" in written
