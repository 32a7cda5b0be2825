"""Verifies libretranslate-aio: all its methods that have a route, its commands, and the examples of its README."""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
from expected import SECRET, address, document, hypotheses
from libretranslate_aio import AsyncLibreTranslate, LibreTranslate
from libretranslate_aio.exceptions import BadRequestError, ForbiddenError, LibreTranslateError

ENGLISH, GERMAN = hypotheses("en-de"), hypotheses("de-en")
SOURCES = list(ENGLISH)
BEST = [texts[0] for texts in ENGLISH.values()]


def raised(kind, call, *arguments):
    """Returns the error of a call that must fail."""
    try:
        call(*arguments)
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


def command(*arguments):
    """Returns what a command of the client prints."""
    program = Path(sys.executable).with_name("libretranslate")
    words = [program, "--url", address(), "--api-key", SECRET, *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def verify(client):
    """Verifies the client without asyncio."""
    assert client.health()
    assert client.translate(SOURCES, "en", "de").translated_text == BEST
    for source, (best, *others) in ENGLISH.items():
        answer = client.translate(source, "en", "de", alternatives=2)
        assert (answer.translated_text, answer.alternatives) == (best, others)
    for source, (best, *_) in GERMAN.items():
        answer = client.translate(source, "auto", "en")
        assert (answer.translated_text, answer.detected_language.language) == (best, "de")
        assert client.detect(source)[0].language == "de"
    assert client.translate("Hello world!", source="en", target="de").translated_text
    assert [(language.code, language.targets) for language in client.languages()] == [
        ("de", ["de", "en"]),
        ("en", ["de", "en"]),
    ]
    assert client.frontend_settings().key_required
    assert "pt is not supported" in str(raised(BadRequestError, client.translate, "Hello world!", "en", "pt"))
    assert raised(LibreTranslateError, client.suggest, "Hello", "Hallo", "en", "de").status_code in (401, 404)


def verify_documents(client):
    """Verifies translate_file, and its command."""
    source, expected = document()
    for language in ("en", "auto"):
        answer = client.translate_file(source, language, "de").translated_file_url
        assert httpx.get(answer).content == expected
        assert httpx.get(answer).status_code == 404
    assert ".html" in client.frontend_settings().supported_files_format
    output = source.with_name("page.libretranslate.html")
    command("translate-file", source, "--source", "en", "--target", "de", "--output", output)
    assert output.read_bytes() == expected
    assert "format not supported" in str(raised(BadRequestError, client.translate_file, __file__, "en", "de"))


async def verify_async():
    """Verifies the client with asyncio."""
    async with AsyncLibreTranslate(address(), api_key=SECRET) as client:
        answer = await client.translate_file(document()[0], "en", "de")
        assert httpx.get(answer.translated_file_url).content == document()[1]
        answers = await asyncio.gather(*(client.translate(source, source="en", target="de") for source in SOURCES))
        assert [answer.translated_text for answer in answers] == BEST
        assert (await client.detect(SOURCES[0]))[0].language == "en"
        assert await client.health() and await client.languages() and await client.frontend_settings()


with LibreTranslate(address(), api_key=SECRET) as client:
    verify(client)
    verify_documents(client)
with LibreTranslate(address(), api_key="wrong") as client:
    assert str(raised(ForbiddenError, client.translate, "Hello world!", "en", "de")) == "Invalid API key"
asyncio.run(verify_async())
assert BEST[0] in command("translate", SOURCES[0], "--source", "en", "--target", "de")
assert "en" in command("detect", SOURCES[0]) and "German" in command("languages")
print("libretranslate-aio: all translations are those of nmt generate and nmt translate-file")
