"""The languages of a model: how codes name them, and the directions between them."""

import pytest
from checkpoints import TEXT_CONFIG, multilingual_codec

from nmt.errors import NmtError
from nmt.text.directions import Direction
from nmt.text.languages import code_named, english_name, matching, public_codes

NLLB = [
    "eng_Latn", "deu_Latn", "fra_Latn", "arb_Arab", "arb_Latn", "pes_Arab", "lvs_Latn", "zsm_Latn", "swh_Latn",
    "nob_Latn", "nno_Latn", "zho_Hans", "zho_Hant", "ace_Arab", "ace_Latn", "kas_Arab", "kas_Deva", "als_Latn",
    "ory_Orya", "kin_Latn", "srp_Cyrl", "por_Latn", "tyv_Cyrl",
]  # fmt: skip


@pytest.mark.parametrize("code, expected", [
    ("de", "deu_Latn"), ("deu", "deu_Latn"), ("DE", "deu_Latn"), ("deu-latn", "deu_Latn"), ("de-AT", "deu_Latn"),
    ("ar", "arb_Arab"), ("ara", "arb_Arab"), ("ar-Latn", "arb_Latn"), ("fa", "pes_Arab"), ("lv", "lvs_Latn"),
    ("ms", "zsm_Latn"), ("sw", "swh_Latn"), ("no", "nob_Latn"), ("nb", "nob_Latn"), ("nn", "nno_Latn"),
    ("zh", "zho_Hans"), ("zh-CN", "zho_Hans"), ("zh-TW", "zho_Hant"), ("zh_HK", "zho_Hant"), ("ZH-HANT", "zho_Hant"),
    ("cmn_Hant", "zho_Hant"), ("ace", "ace_Latn"), ("ks", "kas_Arab"), ("sq", "als_Latn"), ("or", "ory_Orya"),
    ("rw", "kin_Latn"), ("sr", "srp_Cyrl"), ("pt-BR", "por_Latn"), ("tyv", "tyv_Cyrl"),
])  # fmt: skip
def test_a_code_finds_the_language_that_it_means(code: str, expected: str) -> None:
    assert matching(code, NLLB) == expected


@pytest.mark.parametrize("code, codes, expected", [
    ("deu_Latn", ["en", "de"], "de"), ("pt-PT", ["pt", "pt-BR"], "pt"), ("pt-BR", ["pt", "pt-BR"], "pt-BR"),
    ("zh-TW", ["zh", "en"], "zh"), ("no", ["no", "en"], "no"), ("no", ["nb", "nn"], "nb"),
    ("en_GB", ["en-US"], "en-US"), ("zh-TW", ["zh", "zh-Hant"], "zh-Hant"), ("zh_CN", ["zh", "zh-Hant"], "zh"),
    ("zho_Hans", ["zh-Hant", "zh"], "zh"), ("ar_Latn", ["ar", "ar-Latn"], "ar-Latn"), ("ks", ["ks-Deva", "ks"], "ks"),
])  # fmt: skip
def test_codes_of_other_models(code: str, codes: list[str], expected: str) -> None:
    assert matching(code, codes) == expected


@pytest.mark.parametrize("codes", [
    "br bre", "fy fry", "nso ns", "ku kur kmr", "qu que quy", "ay aym ayr", "ff ful fuv", "kr kau knc",
    "ms zlm may msa", "sq alb sqi", "hy arm hye", "eu baq", "my bur", "zh chi zho cmn", "cs CZE ces", "nl dut",
    "fr fre fra", "ka geo",
    "de ger deu", "el gre", "is ice", "mk mac", "mi mao", "fa per pes", "ro rum", "sk slo", "bo tib", "cy wel",
    "rm roh", "os oss", "co cos", "jv jw",
])  # fmt: skip
def test_several_codes_mean_a_language(codes: str) -> None:
    language, *others = codes.split()
    for code in others:
        assert matching(code, [language, "en"]) == language
        assert matching(language, [f"{code}_Latn", "eng_Latn"]) == f"{code}_Latn"


@pytest.mark.parametrize("name, code", [
    ("German", "de"), ("deutsch", "de"), ("Japanese (Japan)", "ja"), ("English [en-GB]", "en-GB"), ("日本語", "ja"),
    ("Chinese (Traditional)", "zh-hant"), ("Simplified Chinese", "zh-hans"), ("zho_Hans", "zho_Hans"), ("x-y", ""),
    ("de-luxe", ""), ("German is hard", ""), ("", ""), ("tyv", ""),
])  # fmt: skip
def test_names_have_codes(name: str, code: str) -> None:
    assert code_named(name) == code


@pytest.mark.parametrize("codes, expected", [
    (NLLB[:5], ["en", "de", "fr", "ar", "ar-Latn"]),
    (["zho_Hant", "eng_Latn"], ["zh", "en"]),  # no other Chinese
    (["zho_Hans", "zho_Hant", "yue_Hant"], ["zh", "zh-Hant", "yue"]),
    (["pt", "pt_BR", "en_GB", "nob_Latn"], ["pt", "pt-BR", "en", "nb"]),
    (["en-US", "en-GB"], ["en-US", "en-GB"]),  # neither is the usual one
])  # fmt: skip
def test_clients_see_the_language_and_what_tells_it_from_others(codes: list[str], expected: list[str]) -> None:
    assert list(public_codes(codes).values()) == expected


def test_all_languages_of_nllb_have_codes_and_names_of_their_own() -> None:
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    public = public_codes(FAIRSEQ_LANGUAGE_CODES)
    assert {code: matching(other, FAIRSEQ_LANGUAGE_CODES) for code, other in public.items()} == {c: c for c in public}
    assert {code: matching(code, list(public.values())) for code in public} == public
    names = list(map(english_name, public.values()))
    assert len({*names, *public.values()}) == 2 * len(public) == 404
    assert {"Norwegian Bokmål", "Acehnese (Arabic)", "Zulu"} <= set(names)


@pytest.mark.parametrize("code", ["fr-Cyrl", "xx", "english", "deu_Cyrl"])
def test_an_unknown_language_is_refused_with_those_that_there_are(code: str) -> None:
    with pytest.raises(NmtError, match=f"no language '{code}', but ace_Arab, ace_Latn, als_Latn"):
        matching(code, NLLB)


def test_an_ambiguous_code_is_refused_with_its_meanings() -> None:
    with pytest.raises(NmtError, match="'en' may be en-US or en-GB"):
        matching("en", ["en-US", "en-GB", "de"])


@pytest.mark.parametrize("directions, given, expected", [
    ((), ("de", "fra"), ("de", "fr")),
    (("en de", "en fr"), ("", "de"), ("en", "de")),  # only one language can be the source
    (("de en", "fr en"), ("de", ""), ("de", "en")),
    (("en de", "de en"), ("", "en"), ("de", "en")),
])  # fmt: skip
def test_what_is_not_said_follows_from_the_directions(
    directions: tuple[str, ...], given: tuple[str, str], expected: tuple[str, str]
) -> None:
    codec = multilingual_codec("both_sides", directions)
    assert codec.config.direction(*given) == Direction(*expected)


@pytest.mark.parametrize("given, message", [
    (("", "de"), "--source-lang is missing; name one of de, en, fr"),
    (("de", ""), "--target-lang is missing; name one of de, en, fr"),
    (("de", "xxx"), "the model has no language 'xxx', but de, en, fr"),
    (("de", "ger"), "both languages are de; name two of de, en, fr"),
    (("de", "deu_Latn"), "both languages are de; name two of de, en, fr"),
])  # fmt: skip
def test_a_wrong_direction_is_one_sentence(given: tuple[str, str], message: str) -> None:
    with pytest.raises(NmtError) as error:
        multilingual_codec("both_sides").directed(Direction(*given))
    assert str(error.value) == message


def test_a_model_of_two_languages_refuses_others() -> None:
    assert TEXT_CONFIG.direction("eng_Latn", "") == ("en", "de")
    with pytest.raises(NmtError, match="no language 'fr', but de"):
        TEXT_CONFIG.direction("en", "fr")


@pytest.mark.usefixtures("printing")
def test_a_direction_that_was_not_trained_has_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    codec = multilingual_codec("target_on_source", ("en de", "de en"))
    codec.directed(Direction("en", "de"))
    assert capsys.readouterr().err == ""
    codec.directed(Direction("de", "fr"))
    assert "not trained on the direction de-fr" in capsys.readouterr().err
    codec.directed(Direction("", "en"))
    assert capsys.readouterr().err == ""
    codec.directed(Direction("", "fra"))
    assert "the model was not trained to translate into fr; its translations may be poor" in capsys.readouterr().err
    assert {codec.config.resolved(Direction("fr", "de")) for _ in range(3)} == {Direction("fr", "de")}
    assert capsys.readouterr().err.count("not trained on the direction fr-de") == 1


def test_names_of_tokens_in_text_stay_text() -> None:
    codec = multilingual_codec("both_sides")
    lines = ["<2de> some words", "words <2fr>", "<2en>"]
    tokens = set(codec.source.ids(list(codec.config.language_pieces)))
    encoded = codec.encode_source(lines)
    assert not any(tokens & set(ids) for ids in encoded)
    assert codec.decode_target(encoded) == lines
