"""Models of several languages offer their directions to all protocols, beside models of two languages."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from checkpoints import eloquent_checkpoint, generated, multilingual_codec, saved, small_checkpoint
from commands import run
from servers import Server, serving, texts

from nmt.serving.catalog import load_models

LANGUAGES = ("eng_Latn", "deu_Latn", "fra_Latn", "zho_Hans", "zho_Hant", "fij_Latn")
LINES = ["some words to learn", "and a few more"]
GERMAN = "Der alte Lehrer sieht einen Hund in dem schönen Park."
SHORT = {"max_length_offset": 3}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Returns a model that is given the target's token, one that is not, and two of a single direction."""
    folder = tmp_path_factory.mktemp("models")
    trained = tuple(f"{source} deu_Latn" for source in ("eng_Latn", "fra_Latn"))
    checkpoints = {
        "many": eloquent_checkpoint(3, codec=multilingual_codec("both_sides", languages=LANGUAGES)),
        "few": eloquent_checkpoint(9, codec=multilingual_codec("target_on_source", trained, LANGUAGES)),
        "one": eloquent_checkpoint(11, codec=multilingual_codec("both_sides", ("deu_Latn fij_Latn",), LANGUAGES)),
        "en-de": eloquent_checkpoint(2),
    }
    return {name: saved(checkpoint, folder / name) for name, checkpoint in checkpoints.items()}


@pytest.fixture(scope="module")
def server(models: dict[str, Path]) -> Iterator[Server]:
    named = [f"--model={name}={path}" for name, path in models.items()]
    with serving(*named, "--api=libretranslate", "--api=deepl", "--precision=fp32", "--device=cpu") as running:
        yield running


def expected(models: dict[str, Path], name: str, source_lang: str = "", target_lang: str = "") -> list[str]:
    languages = [f"--source-lang={source_lang}", f"--target-lang={target_lang}"] if source_lang else []
    translations = generated(models[name], LINES, "--precision=fp32", "--max-length-offset=3", *languages)
    return [translation["hypotheses"][0]["text"] for translation in translations]


def test_a_memory_of_another_direction_is_refused(models: dict[str, Path], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("some words\teinige Wörter\n")
    memories = [f"--memory={name}={pairs}" for name in ("terms:eng_Latn:deu_Latn", "both:en:de", "both:deu:fra")]
    english = {"source": "some words", "source_lang": "en", "target_lang": "de"}
    with serving(models["many"], "--device=cpu", "--api=deepl", *memories) as server:
        listed = server.get("/v3/translation_memories").json["translation_memories"]
        ids = {each["name"]: each["translation_memory_id"] for each in listed}
        for name in ("terms", "both"):
            assert texts(server.post("/translate", english | {"memory": name}).json) == ["einige Wörter"]
        server.translate("some words", source_lang="de", target_lang="fr", memory="both", **SHORT)
        for source, target, name, of in (("de", "en", "terms", "en-de"), ("en", "fr", "both", "de-fr, en-de")):
            fields = {"source_lang": source, "target_lang": target, "memory": name}
            said = f"the memory {name} is of {of}, not from {source} into {target}; name another memory, or none"
            assert said in server.refused("/translate", {"source": "a", **fields})
            assert said in server.refused(f"/documents?name=a.txt&{urlencode(fields)}", "a")
            deepl = {"text": ["a"], "source_lang": source, "target_lang": target, "translation_memory_id": ids[name]}
            answer = server.post("/v2/translate", deepl)
            assert (answer.status, said in answer.json["message"]) == (400, True)
        detected = {"source_lang": "auto", "target_lang": "en", "memory": "terms"}
        said = "not from de into en"
        assert said in server.refused("/translate", {"source": GERMAN, **detected})
        document = server.send("POST", f"/documents?{urlencode(detected | {'name': 'a.txt'})}", GERMAN.encode()).json
        while (state := server.get(f"/documents/{document['id']}").json)["state"] in ("waiting", "translating"):
            pass
        assert said in state["error"]


@pytest.mark.parametrize("fields, name, direction", [
    ({"source_lang": "de", "target_lang": "fr"}, "many", ("deu_Latn", "fra_Latn")),
    ({"source_lang": "deu", "target_lang": "FJ"}, "one", ("deu_Latn", "fij_Latn")),
    ({"source_lang": "fra_Latn", "target_lang": "zh-TW"}, "many", ("fra_Latn", "zho_Hant")),
    ({"source_lang": "fr", "target_lang": "ZH"}, "many", ("fra_Latn", "zho_Hans")),
    ({"source_lang": "en", "target_lang": "de"}, "en-de", ()),  # a model of two languages is preferred
    ({"source_lang": "fr", "target_lang": "de"}, "many", ("fra_Latn", "deu_Latn")),  # the first of two models
    ({"model": "many", "source_lang": "en", "target_lang": "de"}, "many", ("eng_Latn", "deu_Latn")),
    ({"model": "few", "source_lang": "en", "target_lang": "de"}, "few", ("eng_Latn", "deu_Latn")),
    ({"model": "few", "source_lang": "fr"}, "few", ("fra_Latn", "deu_Latn")),  # its only target language
    ({"model": "one", "source_lang": "auto", "target_lang": "fj"}, "one", ("deu_Latn", "fij_Latn")),  # its only source
    ({"source_lang": "en", "target_lang": "fj"}, "many", ("eng_Latn", "fij_Latn")),  # rather than two in turn
    ({"model": "en-de"}, "en-de", ()),
])  # fmt: skip
def test_a_request_gets_the_model_and_the_direction_that_it_names(
    server: Server, models: dict[str, Path], fields: dict[str, str], name: str, direction: tuple[str, ...]
) -> None:
    answer = server.translate(LINES, **fields, **SHORT)
    assert answer["models"] == [name]
    assert texts(answer) == expected(models, name, *direction)


def test_what_cannot_be_identified_is_translated_from_the_only_such_language(tmp_path: Path) -> None:
    codec = multilingual_codec("both_sides", ("fij_Latn eng_Latn", "eng_Latn fij_Latn"), LANGUAGES)
    path = saved(eloquent_checkpoint(3, codec=codec), tmp_path / "model.safetensors")
    with serving(path, "--precision=fp32", "--device=cpu") as server:
        for text, language in ((GERMAN, "fj"), ("This is a sentence of the report, and here is another.", "en")):
            (answer,) = server.translate(text, source_lang="auto", target_lang="en", **SHORT)["translations"]
            assert (answer["detected"], answer["text"] == text) == (language, language == "en")


def test_all_directions_are_listed_in_the_codes_of_each_protocol(server: Server) -> None:
    answer = server.get("/models").json
    codes = ["de", "en", "fj", "fr", "zh", "zh-Hant"]
    assert [language["code"] for language in answer["languages"]] == codes
    assert [language["code"] for language in answer["languages"] if not language["identified"]] == ["fj", "zh-Hant"]
    in_order = ["en", "de", "fr", "zh", "zh-Hant", "fj"]
    assert [tuple(each.values()) for each in answer["directions"]] == [
        (["de"], ["fj"], ["one"]),
        (["en"], ["de"], ["en-de"]),
        (in_order, in_order, ["many"]),
        (["en"], ["de"], ["few"]),
        (["fr"], ["de"], ["few"]),
    ]
    listed = {each["code"]: each for each in server.get("/languages").json}
    assert [*listed] == codes and all(each["targets"] == codes for each in listed.values())
    assert listed["zh-Hant"]["name"] == "Chinese (Traditional)"
    deepl = [*map(str.upper, codes)]
    assert [each["language"] for each in server.get("/v2/languages").json] == deepl
    targets = [each["language"] for each in server.get("/v2/languages?type=target").json]
    assert targets == ["DE", "EN-GB", "EN-US", "FJ", "FR", "ZH", "ZH-HANT"]


def test_the_directions_of_the_last_training_are_listed_first(tmp_path: Path) -> None:
    codec = multilingual_codec("both_sides", languages=("en", "nl", "de", "fr"))
    checkpoint = replace(small_checkpoint(0, codec=codec), provenance={"directions": ["und fr", "fr de", "de fr"]})
    path = saved(checkpoint, tmp_path / "tuned.safetensors")
    (directions,) = load_models([str(path)], [])["mul-mul"].directions
    assert directions.source_langs == ["fr", "de", "en", "nl"]
    assert directions.target_langs == ["de", "fr", "en", "nl"]


def test_other_protocols_translate_in_any_direction(server: Server) -> None:
    (text,) = texts(server.translate(LINES[0], source_lang="de", target_lang="zho_Hant"))
    body = {"q": LINES[0], "source": "de", "target": "zh-hant"}
    assert server.post("/translate", body).json == {"translatedText": text}
    deepl = server.post("/v2/translate", {"text": [LINES[0]], "source_lang": "DE", "target_lang": "ZH-HANT"}).json
    assert deepl == {"translations": [{"detected_source_language": "DE", "text": text}]}


def test_the_source_language_is_identified_among_those_that_can_be(server: Server) -> None:
    (text,) = texts(server.translate(GERMAN, source_lang="de", target_lang="fr"))
    for fields in ({}, {"model": "many"}):
        (answer,) = server.translate(GERMAN, source_lang="auto", target_lang="fr", **fields)["translations"]
        assert (answer["detected"], answer["text"]) == ("de", text)
        (answer,) = server.translate(GERMAN, source_lang="auto", target_lang="de", **fields)["translations"]
        assert (answer["detected"], answer["text"]) == ("de", GERMAN)
    (translation,) = server.post("/v2/translate", {"text": [GERMAN], "target_lang": "FR"}).json["translations"]
    assert translation == {"detected_source_language": "DE", "text": text}
    (detected,) = server.post("/detect", {"source": ["你好,我在公园里看到一只狗。"]}).json["detected"]
    assert detected["language"] == "zh"


@pytest.mark.parametrize("fields, status, said", [
    ({"model": "many", "target_lang": "de"}, 400,
     "source_lang is missing; name one of deu_Latn, eng_Latn, fij_Latn, fra_Latn, zho_Hans, zho_Hant"),
    ({"model": "many", "source_lang": "en"}, 400, "target_lang is missing; name one of deu_Latn"),
    ({"model": "many", "source_lang": "en", "target_lang": "xx"}, 400, "the model has no language 'xx', but deu_Latn"),
    ({"model": "many", "source_lang": "en", "target_lang": "eng_Latn"}, 400, "both languages are eng_Latn; name two"),
    ({"source_lang": "xx", "target_lang": "de"}, 404, "no model translates 'xx-de'; this server translates de-en, "),
    ({"source_lang": "en"}, 400, "target_lang is missing; source_lang and target_lang choose a model together"),
])  # fmt: skip
def test_wrong_languages_are_refused_in_a_sentence(
    server: Server, fields: dict[str, str], status: int, said: str
) -> None:
    assert server.refused("/translate", {"source": "a", **fields}, status).startswith(said)
    body = {"pairs": [{"source": "a", "target": "b"}], **fields}
    assert server.refused("/score", body, status).startswith(said)


def test_scores_alternatives_and_attention_are_of_the_direction(server: Server, models: dict[str, Path]) -> None:
    direction = {"source_lang": "de", "target_lang": "fr"}
    pair = {"source": LINES[0], "target": "more words"}
    (score,) = server.post("/score", {"pairs": [pair], **direction}).json["scores"]
    command = ["rescore", models["many"], "--precision=fp32", "--device=cpu", "--output-format=jsonl"]
    output = run(*command, "--source-lang=de", "--target-lang=fr", stdin=f"{LINES[0]}\tmore words\n".encode()).stdout
    assert score["log_probs"] == pytest.approx(json.loads(output)["rescored"]["log_probs"], abs=1e-5)
    alternatives = {}
    for name, languages in (("fr", direction), ("en", direction | {"target_lang": "en"})):
        answer = server.post("/alternatives", {"source": LINES[0], "prefix": "more", **languages}).json
        assert answer["model"] == "many"
        alternatives[name] = answer["alternatives"]
    best = alternatives["fr"][0]
    (text,) = texts(server.translate(LINES[0], prefix=best["prefix"], beam=1, split=False, **direction))
    assert best["text"] == text
    assert alternatives["fr"] != alternatives["en"]
    kinds = server.post("/attention", pair | direction).json["kinds"]
    assert kinds["cross"]["keys"][0] == "<2deu_Latn>"
    assert kinds["decoder"]["keys"][:2] == ["<s>", "<2fra_Latn>"]
    said = server.refused("/alternatives", {"source": "a", "source_lang": "de", "target_lang": "de"})
    assert said == "this request needs a single model, but no model would translate; name one"


def test_documents_are_translated_in_a_direction(server: Server) -> None:
    for query, source in (("source_lang=de&target_lang=fr", LINES[0]), ("source_lang=auto&target_lang=fr", GERMAN)):
        (text,) = texts(server.translate(source, source_lang="de", target_lang="fr"))
        path = f"/documents?name=a.txt&model=many&{query}"
        document = server.send("POST", path, source.encode()).json["id"]
        while server.get(f"/documents/{document}").json["state"] in ("waiting", "translating"):
            pass
        download = server.get(f"/documents/{document}/result")
        assert download.body.decode() == text
        assert "a.fra_Latn.txt" in download.headers["content-disposition"]
