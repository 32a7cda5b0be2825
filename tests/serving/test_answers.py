"""Answers in full: status, headers and bytes of bodies, as clients get them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkpoints import small_codec, two_models
from servers import Answer, Server, serving

from nmt.serving.service import RequestedText
from nmt.translate.units import Sentence, Translation, Unit

JSON = {"content-type": "application/json"}
CLOSE = {"connection": "close", **JSON}
NOT_FOUND = "Not Found; /docs lists what there is"
NOT_ALLOWED = "Method Not Allowed; /docs lists what there is"
PAIR = {"source": "en", "target": "de"}
FILE = [("source", "en"), ("target", "de"), ("api_key", "secret")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "token").write_text("secret")
    options = ["--api=libretranslate", "--api=deepl", "--device=cpu", "--precision=fp32", "--max-characters=2000"]
    limits = ["--max-document-mib=1", "--max-waiting=40", f"--token-file={folder}/token"]
    with serving(*two_models(folder), *options, *limits, token="secret") as running:
        yield running


def sent(server: Server, request: str, body: Any, headers: dict[str, str]) -> Answer:
    method, path = request.split()
    if isinstance(body, bytes):
        return server.send(method, path, body, **headers)
    return server.post(path, body, **headers) if method == "POST" else server.send(method, path, **headers)


@pytest.mark.parametrize("request_, body, headers, status, expected, text", [
    ("GET /nothing", None, {}, 404, JSON, f'{{"error":"{NOT_FOUND}"}}'),
    ("GET /v2/nothing", None, {"Authorization": "DeepL-Auth-Key secret"}, 404, JSON, f'{{"message":"{NOT_FOUND}"}}'),
    ("PUT /models", None, {}, 405, {"allow": "GET", **JSON}, f'{{"error":"{NOT_ALLOWED}"}}'),
    ("PUT /documents/x", None, {}, 405, {"allow": "DELETE, GET", **JSON}, f'{{"error":"{NOT_ALLOWED}"}}'),
    ("PUT /translate_file", None, {}, 405, {"allow": "POST", **JSON}, f'{{"error":"{NOT_ALLOWED}"}}'),
    ("PUT /v2/languages", None, {"Authorization": "DeepL-Auth-Key secret"}, 405, {"allow": "GET", **JSON},
     f'{{"message":"{NOT_ALLOWED}"}}'),
    ("GET /v3/nothing", None, {}, 403, CLOSE,
     '{"message":"the request needs the header Authorization: DeepL-Auth-Key with the token of this server"}'),
    ("GET /translate", None, {}, 405, {"allow": "POST", **JSON}, f'{{"error":"{NOT_ALLOWED}"}}'),
    ("GET /health", None, {"Authorization": ""}, 200, JSON, '{"status":"ok"}'),
    ("HEAD /health", None, {}, 200, JSON, ""),
    ("GET /health", None, {"Host": "evil.example"}, 421, CLOSE,
     '{"error":"the host \'evil.example\' is not allowed; use the address of the server, or --allow-host"}'),
    ("GET /v2/usage", None, {"Host": "a]b"}, 421, CLOSE,
     '{"message":"the host \'a]b\' is not allowed; use the address of the server, or --allow-host"}'),
    ("GET /health", None, {"Origin": "null"}, 403, CLOSE,
     '{"error":"pages of \'null\' may not send requests; start the server with --allow-origin"}'),
    ("GET /models", None, {"Authorization": ""}, 401, CLOSE,
     '{"error":"the request needs the header Authorization: Bearer with the token of this server"}'),
    ("GET /v2/usage", None, {}, 403, CLOSE,
     '{"message":"the request needs the header Authorization: DeepL-Auth-Key with the token of this server"}'),
    ("POST /translate", {"q": "a", **PAIR}, {"Authorization": ""}, 403, CLOSE, '{"error":"Invalid API key"}'),
    ("POST /score", b" " * 50_000, {}, 413, CLOSE,
     '{"error":"the body has more than 40,384 bytes; send the text in parts"}'),
    ("POST /translate_file", b" " * (2**20 + 16_385), {}, 413, CLOSE,
     '{"error":"the document has more than 1 MiB; send it in parts"}'),
    ("POST /score", b"{", {}, 400, JSON,
     '{"error":"the body is no JSON; send an object such as {\\"source\\": \\"…\\"}"}'),
    ("POST /score", b"{}", {"Content-Type": "text/plain"}, 400, JSON,
     '{"error":"the body must be a JSON object, sent with the header Content-Type: application/json"}'),
    ("POST /score", {"pairs": [{"source": "a"}], "x": 1}, {}, 400, JSON,
     '{"error":"pairs.0.target is wrong: Field required; /docs describes the fields"}'),
    ("POST /translate", {"source": "a", "model": "en-de", "max_length_offset": -1}, {}, 400, JSON,
     '{"error":"max_length_offset must be at least 0 and at most 100000, but is -1"}'),
    ("POST /translate", {"source": ["a"] * 41, "model": "en-de"}, {}, 400, JSON,
     '{"error":"the request has 41 sentences, but at most 40 may wait; send it in parts"}'),
    ("POST /translate", {"q": "a", "source": "en", "target": "en"}, {}, 200, JSON, '{"translatedText":"a"}'),
    ("GET /documents/x", None, {}, 404, JSON,
     '{"error":"there is no such document; it was deleted, downloaded, or never uploaded"}'),
    ("GET /download_file/x", None, {"Authorization": ""}, 404, JSON,
     '{"error":"there is no such document; it was deleted, downloaded, or never uploaded"}'),
    ("GET /v2/languages?type=x", None, {"Authorization": "DeepL-Auth-Key secret"}, 400, JSON,
     '{"message":"Parameter \'type\' is invalid. \'source\' and \'target\' are valid values."}'),
])  # fmt: skip
def test_status_headers_and_body(
    server: Server, request_: str, body: Any, headers: dict[str, str], status: int, expected: dict[str, str], text: str
) -> None:
    answer = sent(server, request_, body, headers)
    assert answer.status == status
    assert {"date", "content-length", "cache-control", "content-security-policy"} < answer.headers.keys()
    common = ("date", "content-length", "cache-control", "content-security-policy", "x-content-type-options",
              "referrer-policy", "cross-origin-resource-policy")  # fmt: skip
    assert {name: value for name, value in answer.headers.items() if name not in common} == expected
    assert answer.body.decode() == text


def test_answers_have_only_the_fields_that_apply_in_a_fixed_order(server: Server) -> None:
    fields = {"model": "en-de", "max_length_offset": 3}
    answer = server.translate("some words", **fields)
    (translation,) = answer["translations"]
    ((hypothesis,),) = [sentence["hypotheses"] for sentence in translation["sentences"]]
    assert [*answer] == ["model", "models", "translations"]
    assert [*translation] == ["text", "sentences"] and [*translation["sentences"][0]] == [
        "line",
        "source",
        "hypotheses",
    ]
    assert [*hypothesis] == ["text", "score", "log_prob", "pieces", "log_probs"]
    (translation,) = server.translate("some words", alignments=True, **fields)["translations"]
    names = ["text", "score", "log_prob", "pieces", "log_probs", "alignment", "segments", "words"]
    assert [*translation["sentences"][0]["hypotheses"][0]] == names
    (translation,) = server.translate("some words", pieces=False, constraints=["x" * 40], **fields)["translations"]
    assert [*translation["sentences"][0]["hypotheses"][0]] == ["text", "score", "unmet"]
    answer = server.translate("Some words.", source_lang="auto", target_lang="fr", max_length_offset=3)
    assert [*answer["translations"][0]] == ["text", "sentences", "detected"]
    pairs = {"pairs": [{"source": "some words", "target": "more"}], "model": "en-de"}
    answer = server.post("/score", pairs).json
    assert ([*answer], [*answer["scores"][0]]) == (
        ["model", "scores"],
        ["log_prob", "pieces", "log_probs", "alignment"],
    )
    answer = server.post("/alternatives", {"source": "some words", "model": "en-de"}).json
    assert [*answer] == ["model", "alternatives"]
    assert [*answer["alternatives"][0]] == ["word", "log_prob", "prefix", "text"]
    answer = server.post("/attention", {"source": "some words", "target": "more", "model": "en-de"}).json
    assert [*answer] == ["kinds", "shown"] and [*answer["shown"]] == ["kind", "layer", "head"]
    names = ["name", "query_side", "key_side", "about", "queries", "keys", "layers", "heads", "weights"]
    assert [[*kind] for kind in answer["kinds"].values()] == [names] * 3
    answer = server.get("/models").json
    names = [
        "models", "languages", "directions", "attention", "glossaries", "memories", "corrections", "documents",
        "max_document_mib",
    ]  # fmt: skip
    assert [*answer] == [*names, "max_beam"]
    assert [*answer["directions"][0]] == ["source_langs", "target_langs", "models"]
    assert [*answer["languages"][0]] == ["code", "name", "identified", "spaces"]
    assert [*answer["models"][0]] == ["name", "source_lang", "target_lang", "parameters", "engine", "examples"]


def test_every_answer_is_as_the_description_says(server: Server) -> None:
    """The fields of the JSON are those of the schemas in /openapi.json, and the required ones are there."""
    described = server.get("/openapi.json").json
    schemas = described["components"]["schemas"]

    def check(value: Any, schema: dict[str, Any]) -> None:
        schema = schemas[schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
        if schema.get("type") == "array":
            for item in value:
                check(item, schema["items"])
        elif "properties" in schema:
            assert set(schema.get("required", ())) <= value.keys() <= schema["properties"].keys()
            for name, item in value.items():
                check(item, schema["properties"][name])

    bodies: dict[str, Any] = {
        "/translate": {"source": "some words", "alignments": True, "max_length_offset": 3},
        "/score": {"pairs": [{"source": "some words", "target": "more"}]},
        "/alternatives": {"source": "some words"},
        "/attention": {"source": "some words", "target": "more"},
    }
    answers = {path: server.post(path, {**body, "model": "en-de"}) for path, body in bodies.items()}
    answers["/detect"] = server.post("/detect", {"source": "some words"})
    for path, answer in answers.items():
        content = described["paths"][path]["post"]["responses"]["200"]["content"]
        check(answer.json, content["application/json"]["schema"])
    check(server.get("/models").json, {"$ref": "ModelsAnswer"})


def form(disposition: bytes, boundary: bytes = b"x-y", line: bytes = b"\r\n", end: bytes = b"--\r\n") -> bytes:
    """Returns a multipart form with a file, whose head is given, behind other fields."""
    heads = [b'form-data; name="%s"' % name.encode() for name, _ in FILE] + [disposition]
    contents = [*(value.encode() for _, value in FILE), b"some words"]
    parts = [
        b"--%s%sContent-Disposition: %s%s%s%s%s" % (boundary, line, head, line, line, content, line)
        for head, content in zip(heads, contents, strict=True)
    ]
    return b"".join(parts) + b"--" + boundary + end


@pytest.mark.parametrize("disposition, kind, name", [
    (b'form-data; name="file"; filename="a.txt"', "multipart/form-data; boundary=x-y", "a"),
    (b'form-data; name="file"; filename="a.txt"', 'Multipart/Form-Data;charset=utf-8; boundary="x-y"', "a"),
    (b"form-data; name=file; filename=a.txt", "multipart/form-data; boundary=x-y", "a"),
    (b'FORM-DATA; NAME="file"; FILENAME="C:\\\\x\\\\a.txt"', "multipart/form-data; boundary=x-y", "a"),
    (b"form-data; name=\"file\"; filename*=utf-8''%C3%BC.txt", "multipart/form-data; boundary=x-y", "%C3%BC"),
    (b"form-data; name=\"file\"; filename*=iso-8859-1''%FC.txt", "multipart/form-data; boundary=x-y", "%C3%BC"),
    (b'form-data; name="file"; filename="\xc3\xbc;\\" .txt"', "multipart/form-data; boundary=x-y", "%C3%BC%3B%22%20"),
    # .NET spells a name in two ways.
    (b"form-data; name=file; filename=\"=?utf-8?B?w7wudHh0?=\"; filename*=utf-8''%C3%BC.txt",
     "multipart/form-data; boundary=x-y", "%C3%BC"),
    ("form-data; name=file; filename=\"\u06af\u200c\u0627\u00a0\u202fb.txt\"".encode(),
     "multipart/form-data; boundary=x-y", "%DA%AF%E2%80%8C%D8%A7%C2%A0%E2%80%AFb"),
])  # fmt: skip
def test_names_of_files_in_forms(server: Server, disposition: bytes, kind: str, name: str) -> None:
    for body in (form(disposition), b"before\r\n" + form(disposition, end=b"--\r\nbehind"), form(disposition, end=b"")):
        answer = server.send("POST", "/translate_file", body, Authorization="", **{"Content-Type": kind})
        assert answer.status == 200, answer.body
        assert re.fullmatch(
            f"{server.address}download_file/[0-9a-f]{{64}}.{name}.de.txt", answer.json["translatedFileUrl"]
        )
    proxied = {"Content-Type": kind, "X-Forwarded-Proto": "https"}
    answer = server.send("POST", "/translate_file", form(disposition), Authorization="", **proxied)
    assert answer.json["translatedFileUrl"].startswith("https://")


@pytest.mark.parametrize("body, kind", [
    (form(b'form-data; name="file"; filename="a.txt"', line=b"\n"), "multipart/form-data; boundary=x-y"),
    (form(b'form-data; filename="a.txt"'), "multipart/form-data; boundary=x-y"),
    (form(b'form-data; name="file"; filename="a.txt"'), "multipart/form-data; boundary=z"),
    (form(b'form-data; name="file"; filename="a.txt"'), "multipart/form-data"),
    (form(b'form-data; name="file"; filename="a.txt"'), "multipart/mixed; boundary=x-y"),
    (form(b'form-data; name="file"; filename="a.txt"'), "multipart/form-data; boundary*=idna''x-y"),
    (b"a&" * 20_000, "application/x-www-form-urlencoded"),
])  # fmt: skip
def test_forms_without_a_file(server: Server, body: bytes, kind: str) -> None:
    answer = server.send("POST", "/translate_file", body, **{"Content-Type": kind})
    assert (answer.status, answer.json) == (400, {"error": "Invalid request: missing file parameter"})


def test_fields_of_the_address_and_the_body(server: Server) -> None:
    """Those of the body replace those of the address; the last of several JSON values counts."""
    kinds = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    query = "/translate?q=a&source=en&target=en"
    assert server.send("POST", query).json == {"translatedText": "a"}
    assert server.post(query, {"q": "b"}).json == {"translatedText": "b"}
    assert server.send("POST", query, b"q=c&q=d", **kinds).json == {"translatedText": ["c", "d"]}
    assert server.send("POST", query, b'{"q": "b", "q": "e"}').json == {"translatedText": "e"}
    assert server.send("POST", query, b"q=c", **{"Content-Type": "text/plain"}).json == {"translatedText": "a"}


def test_the_log_has_fields_and_answers(tmp_path: Path) -> None:
    model = two_models(tmp_path)[0]
    with serving(model, "--device=cpu", "--precision=fp32", "--api=libretranslate", "--log-text") as server:
        server.post("/translate", {"q": "ü", "source": "en", "target": "en", "api_key": "k"})
        answer = server.post("/translate", {"source": ["some words"], "max_length_offset": 2}).json
        server.process.send(15)
        server.ended()
    first, second = server.log.splitlines()[-2:]
    assert first == (
        '/libretranslate/translate {"q": "ü", "source": "en", "target": "en"} -> ' + str({"translatedText": "ü"})
    )
    assert second == '/translate {"source": ["some words"], "max_length_offset": 2} -> ' + str(answer)


def test_an_empty_translation_is_the_text_only_if_there_is_no_other() -> None:
    lists = [[Translation(text, 0.0, [], []) for text in texts] for texts in (["", "Ein Hund"], ["Zwei", ""], [""])]
    sentences = [Sentence(text, start=start) for text, start in (("A dog.", 0), ("Two.", 7), ("-", 12))]
    path: Any = (SimpleNamespace(codec=small_codec()),)
    text = RequestedText(Unit("A dog. Two. -", sentences=sentences), path, None, lists)
    assert [text.translation(rank).strip() for rank in range(2)] == ["Ein Hund Zwei", ""]


def test_log_p_of_text_without_letters_is_a_number_with_a_point() -> None:
    unit, path = Unit("-", sentences=[Sentence("-")]), (SimpleNamespace(codec=small_codec()),)
    text: Any = RequestedText(unit, path, None, [[Translation("-", 0.0, [], [])]])  # type: ignore[arg-type]
    assert json.dumps(text.answer(pieces=True)["sentences"][0]["hypotheses"][0]["log_prob"]) == "0.0"
