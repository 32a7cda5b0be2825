"""Documents over HTTP have the translations of `nmt translate-file`, wait their turn, and leave nothing behind."""

import asyncio
import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from checkpoints import some_sentences, two_models
from commands import run
from servers import Answer, Server, head, hold, serving
from virtual_time import in_virtual_time

from nmt.config import EngineConfig, ServeConfig
from nmt.jobs.pool import WorkerDiedError
from nmt.search.api import Required
from nmt.serving.app import create_app
from nmt.serving.catalog import load_models
from nmt.serving.documents import UPLOADS, DocumentStore
from nmt.serving.errors import OverloadedError, UnknownNameError
from nmt.serving.guard import Guard
from nmt.serving.scheduler import Scheduler
from nmt.serving.schema import DocumentFields, TranslateBody
from nmt.serving.service import Service
from nmt.translate.units import Translation

OPTIONS = ["--device=cpu", "--precision=fp32"]
TEXT = "Some words. A few more!\n\n  pieces to learn\nSome words.\n"
HTML = '<html lang="en"><p>Some <b>words</b> to %s learn. A few more!</p><img alt="few pieces"><pre>code</pre>'
SRT = (
    "1\n00:00:01,000 --> 00:00:02,000\nsome words\nto learn\n\n2\n00:00:03,000 --> 00:00:04,000\n- <i>a few</i> more\n"
)
DOCUMENTS = {"a.txt": TEXT, "b.html": HTML, "c.srt": SRT}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def models(folder: Path) -> list[Path]:
    return two_models(folder)


@pytest.fixture(scope="module")
def server(models: list[Path], folder: Path) -> Iterator[Server]:
    (folder / "token").write_text("secret")
    (folder / "terms.tsv").write_text("words\tpieces\n")
    (folder / "rare.tsv").write_text("few\txyzxyzxyz\nwords\tum\n")
    options = ["--api=libretranslate", "--api=deepl", "--max-document-mib=1", "--token-file", folder / "token",
               f"--glossary=terms={folder}/terms.tsv", f"--glossary=rare={folder}/rare.tsv"]  # fmt: skip
    with serving(*models, *OPTIONS, *options, token="secret", before=tell_ends) as running:
        yield running


def tell_ends() -> None:
    """Makes a server write "ended ID" to standard output when a document is done or has failed."""
    ended = DocumentStore._ended

    def told(documents: DocumentStore, document_id: str) -> None:
        ended(documents, document_id)
        os.write(1, f"ended {document_id}\n".encode())

    DocumentStore._ended = told  # type: ignore[method-assign]


def upload(server: Server, name: str, content: bytes, languages: str = "source_lang=en&target_lang=de") -> str:
    answer = server.send("POST", f"/documents?name={name}&{languages}", content)
    assert answer.status == 200, answer.body
    return str(answer.json["id"])


def ended(server: Server, document_id: str) -> dict[str, Any]:
    """Returns the state of a document when it is done or has failed."""
    server.wait_for(f"ended {document_id}")
    return dict(server.get(f"/documents/{document_id}").json)


def failed(server: Server, name: str, content: bytes, languages: str = "source_lang=en&target_lang=de") -> str:
    """Returns the error of a document that cannot be translated."""
    document_id = upload(server, name, content, languages)
    state = ended(server, document_id)
    answer = server.get(f"/documents/{document_id}/result")
    assert (state["state"], answer.status, answer.json["error"]) == ("failed", 400, state["error"])
    assert re.fullmatch(".{1,400}", state["error"])
    return str(state["error"])


@pytest.fixture(scope="module")
def expected(models: list[Path], folder: Path) -> dict[str, bytes]:
    """What `nmt translate-file` writes for each document."""
    (folder / "in").mkdir()
    for name, text in DOCUMENTS.items():
        (folder / "in" / name).write_text(text)
    run("translate-file", folder / "in", "--model", models[0], *OPTIONS, "--output", folder / "out")
    return {name: (folder / "out" / name).read_bytes() for name in DOCUMENTS}


def test_a_glossary_is_that_of_translate_file(
    server: Server, models: list[Path], expected: dict[str, bytes], folder: Path, tmp_path: Path
) -> None:
    options = [*OPTIONS, f"--glossary={folder}/terms.tsv"]
    run("translate-file", folder / "in" / "b.html", "--model", models[0], *options, "--output", tmp_path / "b.html")
    languages = "source_lang=en&target_lang={}&glossary={}"
    document_id = upload(server, "b.html", HTML.encode(), languages.format("de", "terms"))
    state = ended(server, document_id)
    assert (state["state"], state["terms"]) == ("done", 1)
    content = server.get(f"/documents/{document_id}/result").body
    assert content == (tmp_path / "b.html").read_bytes() != expected["b.html"]
    assert "the chosen glossary needs a single model" in failed(
        server, "a.txt", b"some words", languages.format("fr", "terms")
    )
    answer = server.send("POST", f"/documents?name=a.txt&{languages.format('de', 'x')}", b"some words")
    assert (answer.status, answer.json["error"]) == (404, "there is no glossary 'x'; this server has terms, rare")


def test_sentences_that_suffer_from_their_terms_are_listed(server: Server) -> None:
    lines = ["some words", "a few more", "few words to learn", "to learn"]
    answer = server.translate(lines, glossary="rare", source_lang="en", target_lang="de")
    doubtful = {
        (line, translation["text"])
        for line, translation in zip(lines, answer["translations"], strict=True)
        if translation["sentences"][0]["hypotheses"][0].get("doubts")
    }
    document_id = upload(server, "a.txt", "\n".join(lines).encode(), "source_lang=en&target_lang=de&glossary=rare")
    listed = ended(server, document_id)["least_confident"]
    assert {(entry["source"], entry["target"]) for entry in listed if entry.get("doubts")} == doubtful != set()


def test_marks_of_doubtful_sentences_need_a_calibrated_model(server: Server) -> None:
    message = failed(server, "b.html", b"<p>to learn</p>", "source_lang=en&target_lang=de&doubtful=0.4")
    assert message.startswith("doubtful needs the confidence of translations, which en-de does not give")
    answer = server.send("POST", "/documents?name=a.txt&source_lang=en&target_lang=de&doubtful=2", b"some words")
    assert answer.status == 400 and "doubtful is wrong" in answer.json["error"]


def test_the_terms_of_a_sentence_have_the_form_that_its_translation_has(server: Server) -> None:
    source = "Words to learn, words"
    answer = server.translate(source, glossary="terms", source_lang="en", target_lang="de")
    (hypothesis,) = answer["translations"][0]["sentences"][0]["hypotheses"]
    (first, second) = hypothesis["terms"]
    assert first == {"source": "Words", "targets": ["pieces", "Pieces"], "used": first["used"]}
    assert second == {"source": "words", "targets": ["pieces"], "used": "pieces"}
    assert first["used"] in first["targets"] and first["used"] in hypothesis["text"]
    answer = server.translate("to learn", glossary="terms", source_lang="en", target_lang="de")
    assert "terms" not in answer["translations"][0]["sentences"][0]["hypotheses"][0]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_that_of_translate_file_and_deleted_after_its_download(
    server: Server, expected: dict[str, bytes], name: str
) -> None:
    document_id = upload(server, name, DOCUMENTS[name].encode())
    state = ended(server, document_id)
    assert state == {"state": "done", "sentences": state["sentences"], "done": state["sentences"]}
    assert server.get(f"/documents/{document_id}/result", Authorization="").status == 401
    answer = server.get(f"/documents/{document_id}/result")
    assert answer.body == expected[name] != DOCUMENTS[name].encode()
    assert answer.headers["content-disposition"] == f'attachment; filename="{name[0]}.de.{name[2:]}"'
    kinds = answer.headers["content-type"], answer.headers["x-content-type-options"]
    assert kinds == ("application/octet-stream", "nosniff")
    for path in (f"/documents/{document_id}", f"/documents/{document_id}/result"):
        answer = server.get(path)
        assert (answer.status, answer.json["error"][:25]) == (404, "there is no such document")
    assert server.send("DELETE", f"/documents/{document_id}").status == 404
    assert state["sentences"] == {"a.txt": 3, "b.html": 3, "c.srt": 2}[name]  # each sentence once


def test_names_are_no_paths_and_stay_as_they_are(server: Server) -> None:
    names = {"../%C3%BCber%20%22uns%22.TXT": "%C3%BCber%20%22uns%22.de.TXT", "C:%5Cx%5Ca%2520b.txt": "a%2520b.de.txt"}
    for name, expected_name in names.items():
        document_id = upload(server, name, b"some words")
        assert ended(server, document_id)["state"] == "done"
        shown = server.get(f"/documents/{document_id}/result").headers["content-disposition"]
        assert shown == f"attachment; filename*=UTF-8''{expected_name}"


def test_languages_are_identified_and_may_need_two_models(server: Server) -> None:
    german = "Der alte Lehrer sieht einen Hund in dem schönen Park.".encode()
    document_id = upload(server, "a.txt", german, "source_lang=auto&target_lang=de")
    assert ended(server, document_id)["state"] == "done"
    assert server.get(f"/documents/{document_id}/result").body == german
    document_id = upload(server, "a.txt", b"some words", "source_lang=en&target_lang=fr")
    assert ended(server, document_id)["state"] == "done"
    pair = {"source_lang": "en", "target_lang": "fr"}
    text = server.translate("some words", **pair)["translations"][0]["text"]
    assert server.get(f"/documents/{document_id}/result").body.decode() == text
    said = failed(server, "b.html", HTML.encode(), "source_lang=en&target_lang=fr")
    needs = "needs a single model, but en-de and de-fr translate in turn"
    assert said == f"b.html is not translated: its markup {needs}; give plain text"
    assert b'route="/documents/{id}/result",status="200"' in server.get("/metrics").body


def test_the_state_says_what_stays_as_it_is(server: Server) -> None:
    state = ended(server, upload(server, "a.vtt", b"WEBVTT\n\n00:01.000 --> 00:02.000\nwords\n\nA dog\n"))
    assert state["state"] == "done" and state["left"].startswith("1 passage from line 6 stays as it is, because")


def test_damaged_documents_fail_in_one_sentence(server: Server) -> None:
    assert failed(server, "a.txt", b"some \xff words").startswith("a.txt is not UTF-8 at byte 5; convert it")
    assert "c.srt" in failed(server, "c.srt", b"no subtitles")
    assert failed(server, "b.html", b"<p>some \xff words") == (
        "b.html is not UTF-8 at byte 8; convert it, such as with iconv -f CP1252 -t UTF-8"
    )


@pytest.mark.parametrize("path, status, said", [
    ("/documents", 400, "name is wrong: Field required"),
    ("/documents?name=a.txt&beam=4", 400, "beam is wrong: "),
    ("/documents?name=a.pdf", 400, "'a.pdf' has no known file extension; this server translates *.txt, "),
    ("/documents?name=a%0Ab.txt", 400, r"'a\nb.txt' has a control character in its name; give"),
    ("/documents?name=", 400, "'' has no known file extension"),
    ("/documents?name=" + 300 * "a" + ".txt", 400, "name is wrong: "),
    ("/documents?name=a.txt", 400, "model is missing; name one of en-de, de-fr"),
    ("/documents?name=a.txt&model=x", 404, "there is no model 'x'"),
    ("/documents?name=a.txt&source_lang=de&target_lang=en", 404, "no model translates 'de-en'"),
])  # fmt: skip
def test_impossible_documents_are_refused(server: Server, path: str, status: int, said: str) -> None:
    answer = server.send("POST", path, b"some words")
    assert (answer.status, answer.json["error"][: len(said)]) == (status, said)


def test_a_document_that_is_too_large_is_refused_before_its_end(server: Server) -> None:
    with server.connect() as client:
        client.sendall(head(2**30).replace(b"/translate", b"/documents?name=a.txt") + b"a" * (2**20 + 16_385))
        answer = HTTPResponse(client)
        answer.begin()
        assert answer.status == 413 and b"the document has more than 1 MiB; send it in parts" in answer.read()


def multipart(server: Server, path: str, fields: dict[str, Any], **headers: str) -> Answer:
    """Posts a form; a value of bytes is a file."""
    parts = []
    for name, value in fields.items():
        is_file = isinstance(value, tuple)
        file = f'; filename="{value[0]}"\r\nContent-Type: text/plain' if is_file else ""
        content = value[1] if is_file else str(value).encode()
        parts.append(f'--x-y\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + content)
    body = b"\r\n".join([*parts, b"--x-y--\r\n"])
    return server.send("POST", path, body, **{"Content-Type": "multipart/form-data; boundary=x-y", **headers})


LIBRETRANSLATE = {"source": "en", "target": "de", "api_key": "secret", "file": ("b.html", HTML.encode())}


def test_clients_of_libretranslate_translate_documents(server: Server, expected: dict[str, bytes]) -> None:
    answer = multipart(server, "/translate_file", LIBRETRANSLATE, Authorization="")
    assert answer.status == 200, answer.body
    address = answer.json["translatedFileUrl"]
    assert re.fullmatch(f"{server.address}download_file/[0-9a-f]{{64}}.b.de.html", address)
    path = "/" + address.removeprefix(server.address)
    assert server.get(path, Authorization="").body == expected["b.html"]
    assert server.get(path, Authorization="").status == 404
    large = LIBRETRANSLATE | {"source": "de", "file": ("a.txt", b"a" * 200_000)}
    assert multipart(server, "/libretranslate/translate_file", large, Authorization="").status == 200
    settings = server.get("/frontend/settings").json
    assert settings["filesTranslation"] and {".txt", ".html", ".srt"} <= set(settings["supportedFilesFormat"])
    assert server.get("/models").json["documents"] == [name[1:] for name in settings["supportedFilesFormat"]]


@pytest.mark.parametrize("fields, status, said", [
    ({"api_key": "wrong"}, 403, "Invalid API key"),
    ({"file": "b.html"}, 400, "Invalid request: file parameter is wrong"),
    ({"file": ("b.pdf", b"")}, 400, "Invalid request: file format not supported"),
    ({"file": ("a.txt", b"\xff")}, 400, "a.txt is not UTF-8 at byte 0; convert it"),
    ({"source": ""}, 400, "Invalid request: missing source parameter"),
    ({"source": "xx"}, 400, "xx is not supported"),
    ({"source": "fr"}, 400, "German (de) is not available as a target language from French (fr)"),
])  # fmt: skip
def test_libretranslate_refuses_documents(server: Server, fields: dict[str, Any], status: int, said: str) -> None:
    answer = multipart(server, "/translate_file", LIBRETRANSLATE | fields, Authorization="")
    assert (answer.status, answer.json["error"][: len(said)]) == (status, said)


DEEPL = {"source_lang": "EN", "target_lang": "DE", "file": ("document", HTML.encode()), "filename": "b.html"}
AUTH = {"Authorization": "DeepL-Auth-Key secret"}


def test_clients_of_deepl_translate_documents(server: Server, expected: dict[str, bytes]) -> None:
    assert multipart(server, "/v2/document/", DEEPL, **AUTH).status == 200
    answer = multipart(server, "/v2/document", DEEPL, **AUTH)
    assert answer.status == 200, answer.body
    (name, document_id), (field, key) = answer.json.items()
    assert (name, field) == ("document_id", "document_key")
    server.wait_for(f"ended {document_id}{key}")
    state = server.post(f"/v2/document/{document_id}", {field: key}, **AUTH).json
    sentences = ("Some words to %s learn.", "A few more!", "few pieces")
    assert state == {"document_id": document_id, "status": "done", "billed_characters": sum(map(len, sentences))}
    assert server.post(f"/v2/document/{document_id}/result", {field: key[1:]}, **AUTH).status == 404
    assert server.post(f"/v2/document/{document_id}/result", {field: key}, **AUTH).body == expected["b.html"]
    assert server.post(f"/v2/document/{document_id}/result", {field: key}, **AUTH).status == 404
    document_id, key = multipart(server, "/v2/document", DEEPL | {"filename": "c.srt"}, **AUTH).json.values()
    server.wait_for(f"ended {document_id}{key}")
    state = server.post(f"/v2/document/{document_id}", {field: key}, **AUTH).json
    assert state["status"] == "error" and "c.srt" in state["error_message"]


@pytest.mark.parametrize("fields, said", [
    ({"file": "x"}, "Value for 'file' not supported."),
    ({"target_lang": ""}, "Parameter 'target_lang' not specified."),
    ({"source_lang": "XX"}, "Value for 'source_lang' not supported."),
    ({"output_format": "docx"}, "Value for 'output_format' not supported."),
    ({"glossary_id": "x"}, "Value for 'glossary_id' not supported."),
    ({"formality": "less"}, "'formality' is not supported for given 'target_lang'."),
    ({"filename": "x.pdf"}, "'x.pdf' has no known file extension; this server translates *.txt, "),
])  # fmt: skip
def test_deepl_refuses_documents(server: Server, fields: dict[str, Any], said: str) -> None:
    answer = multipart(server, "/v2/document", DEEPL | fields, **AUTH)
    assert (answer.status, answer.json["message"][: len(said)]) == (400, said)


def test_a_form_with_many_parts_or_a_long_head_is_not_read_to_its_end(server: Server) -> None:
    many: dict[str, Any] = {f"field{index}": "" for index in range(999)}
    for fields in (
        many | {"file": LIBRETRANSLATE["file"]} | LIBRETRANSLATE,
        LIBRETRANSLATE | {"file": ("a" * 4096 + ".txt", b"some words")},
    ):
        answer = multipart(server, "/translate_file", fields)
        assert (answer.status, answer.json["error"]) == (400, "Invalid request: missing file parameter")


@pytest.mark.parametrize("name", [b"filename*=utf-8''a.txt; filename*0=b", b"filename*=idna''%ff.txt"])
def test_a_file_whose_name_is_unclear_is_refused(server: Server, name: bytes) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="file"; ' + name + b"\r\n\r\nx\r\n--b--"
    answer = server.send("POST", "/translate_file", body, **{"Content-Type": "multipart/form-data; boundary=b"})
    assert (answer.status, answer.json["error"]) == (400, "Invalid request: missing file parameter")


def test_any_content_of_a_form_arrives(server: Server) -> None:
    for line in ("\r\n--x-", "--x-y", "\r", "\n\n", "\r\n\r\n", "ä" * 3):
        content = f"a{line}{line}\n x--x-y--{line}".encode()
        fields = LIBRETRANSLATE | {"source": "de", "target": "de", "file": ("ü.txt", content)}
        path = "/" + multipart(server, "/translate_file", fields).json["translatedFileUrl"].removeprefix(server.address)
        answer = server.get(path)
        assert answer.body == content
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%BC.de.txt"


def hostile_requests(draw: random.Random) -> Iterator[tuple[str, bytes, str]]:
    """Yields paths, bodies and content types."""
    form = "multipart/form-data"
    noise = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 300)))
    disposition = b'Content-Disposition: form-data; name="file"; filename'
    bodies = [
        b"", b"--b", b"--b\r\n" * 50, noise, b"--b\r\n" + noise + b"\r\n\r\n" + noise, b"\0" * 100,
        b"--b\r\n" + disposition + b'="' + noise + b'"\r\n\r\nx\r\n--b--', b'{"file": ["a.txt", "a"]}',
        b"--b\r\n" + disposition + b"*=" + noise + b"\r\n\r\nx", b"--b\r\n" + disposition * 500, b"--b\r\n\r\n--b--",
    ]  # fmt: skip
    kinds = [form, f"{form}; boundary=b", f'{form}; boundary="', f"{form}; boundary*=x'y'b", f"{form}; boundary=\xe9"]
    for body in bodies:
        path = draw.choice(["/translate_file", "/v2/document", "/documents", "/documents?name=%FF.html"])
        yield path, body, draw.choice([*kinds, kinds[1], "application/json"])
    document_id = draw.choice(["a" * 64, "..%2f..", "%00", "a" * 2000, "é".encode().hex()])
    for path in (f"/v2/document/{document_id}", f"/v2/document/{document_id}/result"):
        yield path, draw.choice([b"", noise, b'{"document_key": "x"}', b'{"document_key": [1]}']), "application/json"


def test_hostile_documents_are_refused(server: Server) -> None:
    draw, count = random.Random(6), 0
    for _ in range(16):
        for path, body, kind in hostile_requests(draw):
            headers = AUTH if path.startswith("/v2") else {}
            answer = server.send("POST", path, body, **{"Content-Type": kind, **headers})
            assert 400 <= answer.status < 500, (path, body[:80], answer.body)
            assert re.fullmatch(".{1,400}", *answer.json.values()), (path, body[:80], answer.body)
            count += 1
    for method in ("GET", "DELETE"):
        for path in ("documents/x", "documents/%00", "documents/..%2f..", "documents/" + "a" * 2000, "download_file/x"):
            assert 400 <= server.send(method, f"/{path}").status < 500
    assert count >= 200
    assert ended(server, upload(server, "a.txt", b"some words"))["state"] == "done"


def test_documents_can_be_turned_off(models: list[Path]) -> None:
    with serving(models[0], *OPTIONS, "--max-document-mib=0", "--api=libretranslate", "--api=deepl") as server:
        for path in ("/documents?name=a.txt", "/translate_file", "/v2/document"):
            assert server.send("POST", path, b"some words").status == 404
        assert server.get("/models").json["documents"] == []
        assert server.get("/frontend/settings").json["supportedFilesFormat"] == []
        assert not [path for path in server.get("/openapi.json").json["paths"] if "document" in path or "file" in path]


def test_the_server_ends_while_documents_are_translated(models: list[Path]) -> None:
    """Its log has no content of documents."""
    with serving(models[0], *OPTIONS, "--api=libretranslate", "--log-text", before=hold) as server:
        unchanged = LIBRETRANSLATE | {"source": "de", "file": ("a.txt", b"few pieces")}
        assert multipart(server, "/translate_file", unchanged).status == 200
        upload(server, "a.txt", b"some words")
        server.wait_for("batch")
        server.process.send(signal.SIGTERM)
        server.release()
        server.ended()
    assert 'translate_file {"source": "de", "target": "de"} -> ' in server.log
    assert "pieces" not in server.log and "words" not in server.log


class Inline(ThreadPoolExecutor):
    """Works at once, so that virtual time does not pass meanwhile."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Workers:
    """A service whose only worker records batches, and works when it is told to, or at once.

    Each source line is its own translation in capitals.
    """

    def __init__(self, model: Path, **options: Any) -> None:
        asyncio.get_running_loop().set_default_executor(Inline())
        self.batches: list[list[str]] = []
        self.required: set[Required] = set()
        self._futures: list[Future[Any]] | None = None
        config = ServeConfig(batch_tokens=64, **options)
        self.scheduler = Scheduler([self._submit], config)
        models = load_models([str(model)], [])
        self.service = Service(models, self.scheduler, config, EngineConfig(engine="ctranslate2"))
        self.documents = DocumentStore(self.service)

    def _submit(self, work: tuple[Any, list[Any]]) -> "Future[Any]":
        self.batches.append(
            self.service.catalog.models["en-de"].codec.source.decode([list(map(int, s.ids)) for s in work[1]])
        )
        self.required |= {sentence.required for sentence in work[1]}
        done: Future[Any] = Future()
        if self._futures is None:
            done.set_result(self._found(-1))
        else:
            self._futures.append(done)
        return done

    def _found(self, index: int) -> list[list[Translation]]:
        return [[Translation(text.upper(), 0.0, [], [])] for text in self.batches[index]]

    def hold(self) -> None:
        self._futures = []

    async def finish(self, index: int) -> None:
        assert self._futures is not None
        self._futures[index].set_result(self._found(index))
        await settled()

    async def fail(self, index: int, error: Exception) -> None:
        assert self._futures is not None
        self._futures[index].set_exception(error)
        await settled()

    def add(self, *lines: str) -> str:
        return self.documents.add("\n".join(lines).encode(), DocumentFields(name="a.txt"))

    def state(self, document_id: str) -> str:
        return self.documents.get(document_id).state


async def settled() -> None:
    await asyncio.sleep(0.01)  # of virtual time: it passes when nothing else can be done


@in_virtual_time
async def test_a_translated_document_is_kept_for_half_an_hour(models: list[Path]) -> None:
    workers = Workers(models[0])
    kept, failed = workers.add("some words"), workers.documents.add(b"\xff", DocumentFields(name="a.html"))
    await asyncio.sleep(1799)
    assert (workers.state(kept), workers.state(failed)) == ("done", "failed")
    assert [workers.documents.get(document_id).content for document_id in (kept, failed)] == [b"SOME WORDS", b""]
    await asyncio.sleep(2)
    for document_id in (kept, failed):
        with pytest.raises(UnknownNameError):
            workers.state(document_id)


@in_virtual_time
async def test_a_document_that_ends_after_many_others_is_kept(models: list[Path]) -> None:
    workers = Workers(models[0])
    workers.hold()
    slow = workers.add("some words")
    await settled()
    for _ in range(33):
        workers.documents.add(b"\xff", DocumentFields(name="a.html"))
        await settled()
    await workers.finish(0)
    assert workers.state(slow) == "done"


@in_virtual_time
async def test_what_markup_must_keep_is_inserted_if_the_engine_cannot_require_it(models: list[Path]) -> None:
    workers = Workers(models[0])
    document_id = workers.documents.add(b"<p>some %d words", DocumentFields(name="a.html"))
    await settled()
    assert workers.required == {Required()}
    assert b"%d" in workers.documents.take(document_id).content


@in_virtual_time
async def test_of_many_documents_the_last_ones_are_kept(models: list[Path]) -> None:
    workers, document_ids = Workers(models[0]), []
    for _ in range(33):
        document_ids.append(workers.add("some words"))
        await settled()
    with pytest.raises(UnknownNameError):
        workers.state(document_ids[0])
    assert {workers.state(document_id) for document_id in document_ids[1:]} == {"done"}


@in_virtual_time
async def test_short_requests_and_documents_take_turns(models: list[Path]) -> None:
    """Documents fill half of the queue at most, and what comes later needs not wait for all of it."""
    workers = Workers(models[0], max_waiting=160)
    workers.hold()
    document_ids = [
        workers.add(*(f"{sentence} {letter}" for sentence in some_sentences(50, 1))) for letter in "abcdefgh"
    ]
    await settled()
    assert workers.scheduler.waiting + sum(map(len, workers.batches)) == 80
    assert {workers.state(n) for n in document_ids} == {"translating"}
    with pytest.raises(OverloadedError, match="the document is not translated yet; try again later"):
        workers.documents.take(document_ids[0])
    with pytest.raises(OverloadedError, match="8 documents are being translated; try again later"):
        workers.add("some words")
    request = asyncio.create_task(workers.service.translate(TranslateBody(source="short")))
    await settled()
    await workers.finish(0)
    await workers.finish(1)
    assert "short" in workers.batches[2] + workers.batches[1]
    index = 2
    while index < len(workers.batches):
        await workers.finish(index)
        index += 1
    assert (await request)["translations"][0]["text"] == "SHORT"
    assert [workers.documents.get(n).content.decode().splitlines()[0][-1] for n in document_ids] == [*"ABCDEFGH"]


@in_virtual_time
async def test_the_parts_of_a_long_line_take_turns_with_short_lines(models: list[Path]) -> None:
    workers = Workers(models[0])
    workers.hold()
    tasks = []
    for fields in ({"source": "a"}, {"source": "a few " * 50, "max_source_length": 16}, {"source": ["short"] * 8}):
        tasks.append(asyncio.create_task(workers.service.translate(TranslateBody.model_validate(fields))))
        await settled()
    for index in range(5):
        await workers.finish(index)
    assert [len(batch) for batch in workers.batches] == [1, 4, 4, 4, 4, 2]
    assert [task.done() for task in tasks] == [True, False, True]


@in_virtual_time
async def test_a_document_waits_while_the_queue_is_full(models: list[Path]) -> None:
    workers = Workers(models[0], max_waiting=3)
    workers.hold()
    first = asyncio.create_task(workers.service.translate(TranslateBody(source=["first"])))
    await settled()
    others = asyncio.create_task(workers.service.translate(TranslateBody(source=["a", "b", "c"])))
    await settled()
    document_id = workers.add("some words")
    await asyncio.sleep(100)
    assert (workers.state(document_id), workers.scheduler.waiting) == ("translating", 3)
    await workers.finish(0)
    await workers.finish(1)
    await asyncio.sleep(1)
    await workers.finish(2)
    assert (first.done(), others.done(), workers.batches[2]) == (True, True, ["some words"])
    assert workers.documents.take(document_id).content == b"SOME WORDS"


@in_virtual_time
async def test_what_is_deleted_stops(models: list[Path]) -> None:
    """Whether a client deletes its document, or leaves while it waits for it."""
    workers = Workers(models[0])
    workers.hold()
    deleted, left = (workers.add(*some_sentences(50, seed)) for seed in (1, 2))
    waiting = asyncio.create_task(workers.documents.ended(left))
    await settled()
    assert workers.scheduler.waiting > 50
    workers.documents.delete(deleted)
    waiting.cancel()
    await settled()
    assert workers.scheduler.waiting == 0
    for document_id in (deleted, left):
        with pytest.raises(UnknownNameError):
            workers.state(document_id)
    await workers.finish(0)
    assert len(workers.batches) == 1


@in_virtual_time
async def test_a_dead_worker_fails_the_document_that_it_worked_on(models: list[Path]) -> None:
    workers = Workers(models[0])
    workers.hold()
    document_id = workers.add("some words")
    await settled()
    await workers.fail(0, WorkerDiedError())
    document = workers.documents.get(document_id)
    assert (document.state, document.sentences, document.done) == ("failed", 1, 0)
    assert document.error == "a worker process of the server died; send less or try again later"


class Upload:
    """A request that is sent to an application message by message."""

    def __init__(self, app: Guard, path: str) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.answer: list[Any] = []
        self.headers: list[tuple[bytes, bytes]] = []
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"name=a.txt"}
        scope |= {"headers": [(b"host", b"localhost")]}
        self.task = asyncio.create_task(app(scope, self.messages.get, self._send))

    async def _send(self, message: Any) -> None:
        self.answer += [message.get("status"), message.get("body", b"").decode()]
        self.headers += message.get("headers", [])

    async def send(self, **message: Any) -> None:
        self.messages.put_nowait({"type": "http.request", "body": b"some words", "more_body": True, **message})
        await settled()


@in_virtual_time
async def test_few_documents_are_uploaded_at_a_time(models: list[Path]) -> None:
    """Clients of LibreTranslate have their secret in the body, so that their uploads are read before they are known."""
    for path in ("/documents", "/translate_file", "/v2/document"):
        workers = Workers(models[0], max_seconds=60, api=("libretranslate", "deepl"))
        app = Guard(create_app(workers.service), workers.scheduler._config, None)
        uploads = [Upload(app, path) for _ in range(UPLOADS)]
        for upload in uploads:
            await upload.send()
        refused = Upload(app, path)
        await refused.send(more_body=False)
        assert refused.answer[0] == 503 and "8 documents are being uploaded; try again later" in refused.answer[3]
        assert (b"retry-after", b"1") in refused.headers
        await uploads[0].send(type="http.disconnect")
        assert uploads[0].task.done() and not uploads[0].answer
        late = Upload(app, path)
        await late.send()
        await asyncio.sleep(60)
        assert late.answer[0] == uploads[1].answer[0] == 503
        assert "the upload takes more than 60 seconds; send a smaller document" in late.answer[3]
        last = Upload(app, path)
        await last.send(more_body=False)
        assert last.answer[0] == (200 if path == "/documents" else 400)
