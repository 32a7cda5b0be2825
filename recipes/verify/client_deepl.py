"""Verifies deepl: all its methods that have a route, its commands, and the examples of its README."""

import subprocess
import sys
from pathlib import Path

import deepl
from expected import SECRET, address, document, hypotheses

ENGLISH, GERMAN = hypotheses("en-de"), hypotheses("de-en")


def raised(kind, call, *arguments, **options):
    """Returns the message of a call that must fail."""
    try:
        call(*arguments, **options)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind}")


def command(*arguments):
    """Returns what a command of the client prints."""
    words = [sys.executable, "-m", "deepl", "--auth-key", SECRET, "--server-url", address(), *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def verify_translations(client):
    """Verifies translate_text."""
    results = client.translate_text(list(ENGLISH), source_lang="EN", target_lang="DE")
    assert [result.text for result in results] == [texts[0] for texts in ENGLISH.values()]
    assert [result.billed_characters for result in results] == list(map(len, ENGLISH))
    for source, (best, *_) in GERMAN.items():
        result = client.translate_text(source, target_lang="EN-GB", context="A walk.", preserve_formatting=True)
        assert (result.text, result.detected_source_lang) == (best, "DE")
        options = {
            "split_sentences": deepl.SplitSentences.OFF,
            "formality": "prefer_less",
            "model_type": "latency_optimized",
        }
        assert client.translate_text(source, source_lang="de", target_lang="en-us", **options).text == best
    for markup in ("html", "xml"):
        result = client.translate_text("<b>How</b> are you?", source_lang="EN", target_lang="DE", tag_handling=markup)
        assert result.text.count("<b>") == result.text.count("</b>") > 0
    assert client.translate_text("Hello, world!", target_lang="DE").detected_source_lang == "EN"
    options = {"target_lang": "DE", "tag_handling": "xml", "ignore_tags": ["x"], "model_type": "quality_optimized"}
    result = client.translate_text("<d><p>How are you?</p><x>Hello!</x></d>", source_lang="EN", **options)
    assert result.text.endswith("</p><x>Hello!</x></d>") and result.model_type_used == "quality_optimized"


def verify_lists(client):
    """Verifies the methods that list."""
    assert [language.code for language in client.get_source_languages()] == ["DE", "EN"]
    assert [language.code for language in client.get_target_languages()] == ["DE", "EN-GB", "EN-US"]
    assert client.list_glossaries() == []  # for one pair of languages only
    assert [(pair.source_lang, pair.target_lang) for pair in client.get_glossary_languages()] == [
        ("en", "de"),
        ("de", "en"),
    ]
    (glossary,) = client.list_multilingual_glossaries()
    assert (glossary.name, [pair.entry_count for pair in glossary.dictionaries]) == ("art", [1, 1])
    assert client.get_multilingual_glossary(glossary.glossary_id).name == "art"
    entries = client.get_multilingual_glossary_entries(glossary, "EN", "DE")
    assert [pair.entries for pair in entries.dictionaries] == ["artist\tMaler"]
    result = client.translate_text("An artist.", source_lang="EN", target_lang="DE", glossary=glossary)
    assert "Maler" in result.text
    usage = client.get_usage()
    assert usage.character.valid and not usage.any_limit_reached


def verify_documents(client):
    """Verifies translate_document_from_filepath, and its commands."""
    source, expected = document()
    output = source.with_name("page.deepl.html")
    for options in ({"source_lang": "EN"}, {}):
        status = client.translate_document_from_filepath(source, output, target_lang="DE", **options)
        assert status.done and status.billed_characters > 0
        assert output.read_bytes() == expected
    folder = source.with_name("deepl")
    command("document", "--to", "DE", str(source), str(folder))
    assert (folder / source.name).read_bytes() == expected
    source.with_name("page.srt").write_text("no subtitles")
    for path, kind, said in (
        (source.with_name("page.srt"), deepl.DocumentTranslationException, "page.srt has no times"),
        (__file__, deepl.DeepLException, "no known file extension"),
    ):
        languages = {"source_lang": "EN", "target_lang": "DE"}
        assert said in raised(
            kind, client.translate_document_from_filepath, path, output.with_suffix(Path(path).suffix), **languages
        )


def verify_errors(client):
    """Verifies what the client makes of errors."""
    error = deepl.DeepLException
    assert "'target_lang' not supported" in raised(error, client.translate_text, "Hello, world!", target_lang="FR")
    less = {"target_lang": "DE", "formality": "less"}
    assert "'formality' is not supported" in raised(error, client.translate_text, "How are you?", **less)
    assert "'tag_handling' not specified" in raised(
        error, client.translate_text, "How are you?", target_lang="DE", ignore_tags=["x"]
    )
    broken = {"target_lang": "DE", "tag_handling": "xml"}
    assert "not well-formed" in raised(error, client.translate_text, "<b>How</i> are you?", **broken)
    glossary = ("My glossary", "EN", "DE", {"artist": "Maler"})
    refused = deepl.AuthorizationException
    assert "requests cannot change glossaries" in raised(refused, client.create_glossary, *glossary)
    (known,) = client.list_multilingual_glossaries()
    assert "requests cannot change glossaries" in raised(refused, client.delete_multilingual_glossary, known)
    for call in (client.get_glossary, client.get_glossary_entries, client.delete_glossary):
        raised(deepl.GlossaryNotFoundException, call, "559192ed-8e23-4123-ab4d-c0d0a8d8a6b3")
    raised(deepl.AuthorizationException, deepl.DeepLClient("wrong", server_url=address()).get_usage)


client = deepl.DeepLClient(SECRET, server_url=address())
verify_translations(client)
verify_lists(client)
verify_errors(client)
verify_documents(client)
source, (best, *_) = next(iter(ENGLISH.items()))
assert best in command("text", "--to", "DE", source)
assert "German" in command("languages") and "Characters: 0" in command("usage")
print("deepl: all translations are those of nmt generate and nmt translate-file")
