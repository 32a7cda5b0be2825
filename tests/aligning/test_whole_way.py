"""Two documents of each format become a corpus, a model and a service."""

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from commands import SMALL, TRAIN, run
from servers import serving, texts
from test_align import LANGS
from test_align import texts as sentence_pairs

pytestmark = pytest.mark.nightly


def _cues(head: str, sentences: Sequence[str], mark: str) -> bytes:
    times = ("{}\n00:{:02}:{:02}{}000 --> 00:{:02}:{:02}{}500\n".format(i, *divmod(i, 60), mark, *divmod(i, 60), mark)
             for i in range(1, len(sentences) + 1))  # fmt: skip
    return (head + "".join(f"{time}{line}\n\n" for time, line in zip(times, sentences, strict=True))).encode()


def _word(sentences: Sequence[str]) -> bytes:
    """Returns a package with the parts that a document needs."""
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    types = f'<Override PartName="/word/document.xml" ContentType="{main}.document.main+xml"/>'
    paragraphs = "".join(f"<w:p><w:r><w:t>{line}</w:t></w:r></w:p>" for line in sentences)
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    file = BytesIO()
    with ZipFile(file, "w") as parts:
        listing = "http://schemas.openxmlformats.org/package/2006/content-types"
        parts.writestr("[Content_Types].xml", f'<Types xmlns="{listing}">{types}</Types>')
        parts.writestr("word/document.xml", f"<w:document {names}><w:body>{paragraphs}</w:body></w:document>")
    return file.getvalue()


WRITERS: dict[str, Callable[[Sequence[str]], bytes]] = {
    "txt": lambda sentences: "".join(f"{line}\n" for line in sentences).encode(),
    "md": lambda sentences: "".join(f"{line}\n\n" for line in sentences).encode(),
    "html": lambda sentences: "".join(f"<p>{line}</p>\n" for line in sentences).encode(),
    "docx": _word,
    "json": lambda sentences: json.dumps({f"key{i}": line for i, line in enumerate(sentences)}).encode(),
    "srt": lambda sentences: _cues("", sentences, ","),
    "vtt": lambda sentences: _cues("WEBVTT\n\n", sentences, "."),
}


@pytest.mark.parametrize("form", WRITERS)
def test_documents_become_a_service(tmp_path: Path, form: str) -> None:
    pairs = sentence_pairs(300)
    documents = [tmp_path / f"book.{lang}.{form}" for lang in ("fon", "mos")]
    for path, sentences in zip(documents, zip(*pairs[:260], strict=True), strict=True):
        path.write_bytes(WRITERS[form](sentences))
    run("align", *documents, *LANGS, "--output", tmp_path / "corpus.tsv", "--page", tmp_path / "corpus.html")
    rows = [line.split("\t") for line in (tmp_path / "corpus.tsv").read_text().splitlines()[1:]]
    assert len({(source, target) for source, target, *_ in rows} & set(pairs)) > 250
    run(
        "clean",
        *LANGS,
        "--train",
        tmp_path / "corpus.tsv",
        "--least-score=0.5",
        "--max-other-language=1",
        "--dest",
        tmp_path / "clean",
    )
    for lang, sentences in zip(("fon", "mos"), zip(*pairs[260:], strict=True), strict=True):
        (tmp_path / f"valid.{lang}").write_text("".join(f"{line}\n" for line in sentences))
    corpora = f"--train={tmp_path}/clean", f"--valid={tmp_path}/valid", "--vocab-size=400"
    run("preprocess", *LANGS, *corpora, "--dest", tmp_path / "data")
    run("train", tmp_path / "data", "--save-dir", tmp_path / "run", *TRAIN, *SMALL, "--max-updates=40")
    with serving(tmp_path / "run" / "best.safetensors", "--device=cpu") as server:
        (translation,) = texts(server.post("/translate", {"source": pairs[0][0]}).json)
        assert translation
