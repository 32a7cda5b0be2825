"""Verifies libretranslatepy: all its methods, and the example of its documentation."""

from urllib.error import HTTPError

from expected import SECRET, address, hypotheses
from libretranslatepy import LibreTranslateAPI

client = LibreTranslateAPI(address(), SECRET)
for pair in ("en-de", "de-en"):
    source_lang, target_lang = pair.split("-")
    for source, (best, *_) in hypotheses(pair).items():
        assert client.translate(source, source_lang, target_lang) == best
        assert client.translate(source, "auto", target_lang) == best
        assert client.detect(source)[0]["language"] == source_lang
assert client.translate("LibreTranslate is awesome!", "en", "de")
assert client.detect("Hello World")[0]["language"] == "en"
assert [(language["code"], language["name"]) for language in client.languages()] == [
    ("de", "German"),
    ("en", "English"),
]
for wrong, status in ((client, 400), (LibreTranslateAPI(address(), "wrong"), 403)):
    try:
        wrong.translate("LibreTranslate is awesome!", "en", "es")
    except HTTPError as error:
        assert error.code == status
    else:
        raise AssertionError(f"no error {status}")
print("libretranslatepy: all translations are those of nmt generate")
