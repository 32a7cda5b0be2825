"""The rules of `nmt clean`: which pairs they drop, and what they measure, against definitions by character."""

import re
import unicodedata
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nmt.cleaning.rules import REASONS, Cleaner
from nmt.config import CleanConfig
from nmt.data.leaks import HeldOut
from nmt.data.measures import measure
from nmt.errors import NmtError
from nmt.text.words import is_blank

NOTHING: dict[str, Any] = {
    "max_characters": 0, "max_ratio": 0.0, "min_letters": 0.0, "min_script": 0.0, "max_other_language": 1.0,
    "repetition": False, "max_copies": 0, "control": False, "markup": False, "untranslated": False, "numbers": False,
    "encoding": "keep",
}  # fmt: skip
SENTENCE = "The committee met on Monday and adopted the report without a vote."
LONGER = SENTENCE + " It then heard the minister."
SATZ = "Der Ausschuss tagte am Montag und nahm den Bericht ohne Abstimmung an."
PHRASE = "Le comité s’est réuni lundi et a adopté le rapport sans le mettre aux voix."


def cleaner(source_lang: str = "en", target_lang: str | None = "de", **options: Any) -> Cleaner:
    config = CleanConfig(source_lang=source_lang, target_lang=target_lang, train=("c",), dest="d", **options)
    return Cleaner(config, HeldOut(()))


DEFAULTS = cleaner()
FRENCH = cleaner("fr")


def reason(clean: Cleaner, *pair: str) -> str:
    """Returns why a pair is dropped; `kept` if it is not."""
    _, (code,), _ = clean([[line] for line in pair])
    return REASONS[code] if code >= 0 else "kept"


@pytest.mark.parametrize("source, target, expected", [
    (SENTENCE, SATZ, "kept"),
    ("Yes.", "Ja.", "kept"),
    ("   ", SATZ, "empty"),
    (SENTENCE, "", "empty"),
    (SENTENCE, SATZ.replace("Montag", "Mon\x00tag"), "control"),
    (SENTENCE, SATZ.replace("Montag", "Mon\ufffdtag"), "control"),
    (SENTENCE * 30, SATZ * 30, "max_characters"),
    (SENTENCE, "Der Ausschuss tagte am Montag.", "kept"),
    (SENTENCE, "Ja.", "max_ratio"),
    ("$ 12.50 (a)", "12,50 $ (a)", "min_letters"),
    ("2001, chapter 27, s. 9", "2001, Kapitel 27, Art. 9", "kept"),
    (SENTENCE, "Комитет собрался в понедельник и принял доклад без голосования.", "min_script"),
    (SENTENCE, SENTENCE.upper().replace(".", "!"), "untranslated"),
    ("The years 1998 and 2003.", "Die Jahre 1998 und 2003.", "kept"),
    ("It costs 1,500.75 dollars.", "Es kostet 1 500,75 Dollar.", "kept"),
    ("Within 30 days it ends.", "Es endet in dreißig Tagen.", "kept"),
    ("The years 1998 and 2003.", "Die Jahre 1998 und 2004.", "numbers"),
    ("It ends after 30 days.", "Es endet nach 300 Tagen.", "numbers"),
    ("The years 1990-91 were good.", "Die Jahre 1990-1991 waren gut.", "kept"),
    ("They came in 2003.", "Sie kamen ٢٠٠٣ hierher.", "kept"),
    ("See <b>page</b> two.", "Siehe Seite zwei.", "markup"),
    ("Bread &amp; butter is here.", "Brot und Butter sind hier.", "markup"),
    ("See [[page two]] of it.", "Siehe Seite zwei davon.", "markup"),
    ("If a < b and b > c, it ends.", "Wenn a < b und b > c, endet es.", "kept"),
    ("Yesterday it ended, and so it did.", "Gestern endete es, und so war es.", "kept"),
    (LONGER, SATZ + " " + SATZ.lower(), "repetition"),
    (SENTENCE, SATZ.replace("am Montag", "am Montag, am Montag"), "repetition"),
    ("The report that the committee took.", "Der Bericht, der der Ausschuss nahm. " * 2, "repetition"),
    (SENTENCE, SATZ.replace("Bericht", "Bericht Bericht"), "repetition"),
    (LONGER, SATZ + " / " + SATZ, "repetition"),
    (LONGER, SATZ + " - " + SATZ, "repetition"),
    (LONGER, SATZ + " – " + SATZ, "repetition"),
    (LONGER, f"[{SATZ}][{SATZ}]", "repetition"),
    (SENTENCE, "Guten Tag. " * 5, "repetition"),
    (SENTENCE, "Montag | " * 6, "repetition"),
    (SENTENCE, "Am Montag. Am Montag kam er. Am Montag kam er.", "repetition"),
    (SENTENCE, "Der Bericht nennt nur 9:30 9:30 als Anfang am Montag.", "repetition"),
    (SENTENCE, "Am Montag nahm er den Bericht. Den Bericht — Bericht 3 — hat er angenommen.", "kept"),
    (SENTENCE, "Am Montag nahm er den Bericht, den Bericht hat er angenommen.", "repetition"),
    (SENTENCE, SATZ.replace("nahm", "nahm nahm nahm"), "repetition"),
    (SENTENCE, "Die, die die Berichte annahmen, nahmen den Bericht am Montag und den Bericht am Ende an.",
     "repetition"),
    (SENTENCE, "Nun tagte der Ausschuss am Montag, der der Bericht und der Bericht am Ende ist.", "kept"),
    (SENTENCE, "The report was adopted by the committee on Monday without a vote.", "max_other_language"),
    (PHRASE, SATZ, "max_other_language"),
    ("Oh no! ☹️☹️ ❤️", "O nein! ☹️☹️ ❤️", "kept"),
    ("The meeting is at 2:00 p.m. today.", "Die Sitzung ist heute um 14:00.", "kept"),
    ("The meeting is at 2 pm.", "Die Sitzung ist um 14 Uhr.", "kept"),
    ("From 10:30 to 11:45 P.M.", "Von 22.30 bis 23.45.", "kept"),
    ("It began at 12:15 a.m.", "Es begann um 0:15.", "kept"),
    ("The meeting is at 2:00 p.m. today.", "Die Sitzung ist heute um 15:00.", "numbers"),
    ("The meeting is at 2:00 a.m. today.", "Die Sitzung ist heute in Raum 14.", "numbers"),
    ("It costs 2 dollars.", "Es kostet 14 Dollar.", "numbers"),
    ("Yes! \U0001fae8\U0001faea\U0001f6d8", "Ja! \U0001fae8\U0001faea\U0001f6d8", "kept"),
    (SENTENCE, SATZ + "\U000e0fff", "control"),
    (SENTENCE, "\u200b\ufeff \u00ad", "empty"),
    (SENTENCE, "Der Bericht wurde ver?ffentlicht und ist g?ltig.", "encoding"),
    (SENTENCE, "Der Bericht steht unter http://example.org/a?b=c im Netz.", "kept"),
    (SENTENCE, "Ist es so?Ja, der Bericht steht unter example.org/a?id=drei im Netz.", "kept"),
])  # fmt: skip
def test_a_pair_is_dropped_for_the_first_rule_that_it_breaks(source: str, target: str, expected: str) -> None:
    assert reason(DEFAULTS, source, target) == expected
    assert reason(cleaner(**NOTHING), source, target) == ("empty" if expected == "empty" else "kept")


@pytest.mark.parametrize("lang, line, expected", [
    ("ru", "Комитет собрался в понедельник и принял доклад.", "kept"),
    ("ja", "委員会は月曜日に会合し、投票なしで報告書を採択した。", "kept"),
    ("zh", "委员会星期一举行会议，未经表决通过了报告。", "kept"),
    ("ko", "위원회는 월요일에 만나 투표 없이 보고서를 채택했다.", "kept"),
    ("hi", "समिति की बैठक सोमवार को हुई और रिपोर्ट स्वीकार की गई।", "kept"),
    ("el", "Η επιτροπή συνεδρίασε τη Δευτέρα και ενέκρινε την έκθεση.", "kept"),
    ("pt_BR", "A comissão reuniu-se na segunda-feira e adotou o relatório sem votação.", "kept"),
    ("ja", "人々はＡＢＣ社のｶﾀｶﾅを読みました。とても長い文章です。", "kept"),
    ("zh", "你好吗?我很好。他们星期一举行会议并通过了报告。", "kept"),
    ("uk", "Сімʼя пʼє, мʼята вʼяне, а обʼєкт зʼявився.", "kept"),
    ("RU", "Комитет собрался в понедельник и принял доклад.", "kept"),
    ("zh", "Комитет собрался в понедельник и принял доклад.", "min_script"),
    ("ru", SENTENCE, "min_script"),
    ("rus_Cyrl", SENTENCE, "min_script"),
    ("ukr_Cyrl", SENTENCE, "min_script"),
    ("zho_Hans", "委员会星期一举行会议，未经表决通过了报告。", "kept"),
    ("deu", SATZ, "kept"),
    ("deu", PHRASE, "max_other_language"),
])  # fmt: skip
def test_languages_have_their_scripts(lang: str, line: str, expected: str) -> None:
    assert reason(cleaner("en", lang), SENTENCE, line) == expected


@pytest.mark.parametrize("lang, line", [
    ("tr", "Bu kadar hızlı gitme, lütfen yavaş yavaş sür."),
    ("tur_Latn", "Yavaş yavaş sür."),
    ("id", "Perlahan perlahan mereka berjalan ke rumah itu."),
    ("ms", "Mereka berjalan perlahan perlahan ke rumah itu."),
    ("sw", "Walitembea taratibu taratibu hadi nyumbani kwao."),
    ("it", "Camminava piano piano verso la sua casa."),
    ("hi", "वह धीरे धीरे अपने घर की ओर चल रहा था।"),
])  # fmt: skip
def test_a_doubled_word_is_grammar_in_some_languages(lang: str, line: str) -> None:
    clean = cleaner("en", lang, max_other_language=1.0)
    assert reason(clean, SENTENCE[: len(line)], line) == "kept"
    tripled = re.sub(r"(\S+)(?= \1 )", r"\1 \1", line, count=1, flags=re.IGNORECASE)
    assert reason(clean, SENTENCE[: len(line)], tripled) == "repetition"


@pytest.mark.parametrize("lang, line, expected", [
    ("zh", "我爱你我爱你我爱你我爱你。", "repetition"), ("zh", "谢谢，谢谢，谢谢，谢谢", "repetition"),
    ("zh", "我们研究研究这个问题，然后再讨论讨论。", "kept"), ("ja", "いろいろな人がますます増えている。", "kept"),
    ("ar", "نعم، نعم، نعم هذا هو التقرير", "repetition"),
])  # fmt: skip
def test_repetition_in_other_scripts(lang: str, line: str, expected: str) -> None:
    options = {"max_other_language": 1.0, "max_ratio": 0.0, "numbers": False}
    assert reason(cleaner("en", lang, **options), "This is it for now.", line) == expected


@pytest.mark.parametrize("lang, line", [
    ("zh", "委员会星期一举行会议，未经表决通过了报告。"),
    ("zh", "委员会周一开会，未经表决即通过报告。"),
    ("zh_TW", "委員會於星期一開會，未經表決通過報告。"),
    ("yue", "委員會禮拜一開會，冇投票就通過咗報告。"),
    ("ja", "委員会は月曜日に会合し、投票なしで報告書を採択した。"),
    ("ja", "委員会は月曜に開会、無投票で報告書を採択。"),
    ("ja", "いいんかいはげつようびにあつまって、とうひょうなしでほうこくをみとめたのでした。"),
    ("ko", "위원회는 월요일에 만나 투표 없이 보고서를 채택했다."),
    ("th", "คณะกรรมการประชุมเมื่อวันจันทร์และรับรองรายงานโดยไม่มีการลงคะแนน"),
    ("hi", "समिति की बैठक सोमवार को हुई और बिना मतदान के रिपोर्ट स्वीकार की गई।"),
])  # fmt: skip
def test_sound_pairs_in_other_scripts_are_about_equally_long(lang: str, line: str) -> None:
    clean = cleaner("en", lang, max_ratio=1.5, max_other_language=1.0, encoding="keep")
    assert reason(clean, SENTENCE, line) == "kept"
    assert reason(clean, SENTENCE, unicodedata.normalize("NFD", line)) == "kept"
    assert reason(cleaner("en", lang, max_other_language=1.0), SENTENCE, line[:6]) == "max_ratio"


@pytest.mark.parametrize("lang, line", [
    ("ko", "위원회는 월요일에 만나 투표 없이 보고서를 채택했다."),
    ("ko", "그는 어제 학교에서 친구와 함께 오래된 책을 읽고 있었다."),
    ("vi", "Ủy ban đã họp vào thứ Hai và thông qua báo cáo mà không cần bỏ phiếu."),
    ("ja", "コーヒーを飲みながら、ベランダでガーデニングの本を読んでいました。"),
    ("fr", PHRASE),
])  # fmt: skip
def test_decomposed_text_is_judged_like_composed_text(lang: str, line: str) -> None:
    clean, decomposed = cleaner("en", lang), unicodedata.normalize("NFD", line)
    pairs, reasons, histograms = clean([[SENTENCE], [line]])
    other, other_reasons, other_histograms = clean([[SENTENCE], [decomposed]])
    assert reasons == other_reasons == [-1] and histograms == other_histograms
    assert pairs.hashes == other.hashes and other.sides[1] == [decomposed]
    assert reason(clean, SENTENCE, decomposed + " " + decomposed) == reason(clean, SENTENCE, line + " " + line)


@pytest.mark.parametrize("languages, source, target", [
    ("en-zh", "It has 10,000 people and 2 cars.", "它有1万人和2辆车。"),
    ("en-zh", "It has 10,000 people.", "它有10000人。"),
    ("en-zh", "It cost 120 million yuan.", "它花费1.2亿元。"),
    ("en-zh", "It cost 350,000 yuan.", "它花费35万元。"),
    ("en-zh", "More than 200,000 people came in 2003.", "2003年有20多万人来。"),
    ("en-zh", "It cost 35 million yuan.", "它花费3千5百万元。"),
    ("en-zh_TW", "It cost 5 million yuan.", "它花費500萬元。"),
    ("en-ja", "It cost 120 million yen.", "１億2000万円かかった。"),
    ("en-ja", "It cost 35,000 yen.", "3万5000円かかった。"),
    ("en-ja", "It cost 1.5 trillion yen.", "1兆5000億円かかった。"),
    ("en-ko", "It cost 35,000 won on 2 days.", "2일 동안 3만 5000원이 들었다."),
    ("en-ko", "It cost 1.2 billion won.", unicodedata.normalize("NFD", "12억 원이 들었다.")),
    ("en-hi", "It cost 12,500,000 rupees.", "इसकी कीमत 1.25 करोड़ रुपये थी।"),
    ("en-hi", "It cost 500,000 rupees.", "इसकी कीमत 5 लाख रुपये थी।"),
    ("en-hi", "It cost 12.5 million rupees.", "इसकी कीमत १ कर\u094b\u095c २५ लाख रुपये थी।"),
    ("en-de", "It cost 1.5 billion euros.", "Es kostete 1500 Millionen Euro."),
    ("en-de", "It cost 1.5 billion euros.", "Es kostete 1,5 Mrd. Euro."),
    ("en-de", "It cost 1,234 million euros.", "Es kostete 1,234 Milliarden Euro."),
    ("en-fr", "It cost $2.2 billion.", "Cela a coûté 2 200 000 000 $."),
    ("en-fr", "Within 6 months and 500 nautical miles.", "Dans les six mois et 500 milles marins."),
    ("en-es", "It cost 1.5 billion euros.", "Costó 1.500 millones de euros."),
    ("en-es", "It cost 2.5 trillion euros.", "Costó 2500 mil millones de euros."),
    ("en-pt", "It cost 12 thousand euros.", "Custou 12.000 euros."),
    ("pt-es", "Custou 1,5 bilhão de euros.", "Costó 1500 millones de euros."),
    ("en-it", "It cost 12,000 euros.", "È costato 12mila euro."),
    ("en-ru", "It has 1,500,000 people.", "Там 1,5 миллиона человек."),
    ("ru-de", "Там 20 тысяч человек.", "Dort sind 20.000 Menschen."),
    ("ja-ko", "1億2000万円かかった。", "120,000,000엔이 들었다."),
    ("en-th", "It began in 1970, in May.", "เริ่มขึ้นเมื่อเดือนพฤษภาคม พ.ศ. 2513"),
    ("en-de", "IT COST 1.5 BILLION EUROS.", "ES KOSTETE 1500 MİLLIONEN EURO; 1500 MILLIONEN."),
    ("en-tr", "They drove 5 miles.", "5 MİL gittiler, 5 mil."),
    ("en-tw", "It cost 5 billion dollars in 2 years.", "Ɛboɔ yɛ $5 billion mfeɛ 2 mu."),
    ("en-da", "It cost 5 trillion euros.", "Det kostede 5 billioner euro."),
    ("en-sv", "They drove 30 miles on 2 days.", "De körde 5 mil, 30 miles, på 2 dagar."),
    ("en-fi", "It cost 5 million euros.", "Se maksoi 5 miljoonaa euroa."),  # a word that is not known
])  # fmt: skip
def test_numbers_are_compared_by_value(languages: str, source: str, target: str) -> None:
    clean = cleaner(*languages.split("-"), **NOTHING | {"numbers": True})
    assert reason(clean, source, target) == "kept"


@pytest.mark.parametrize("languages, source, target", [
    ("en-zh", "It has 10,000 people.", "它有2万人。"),
    ("en-zh", "It cost 120 million yuan.", "它花费12亿元。"),
    ("en-ja", "It cost 350,000 yen in 2003.", "2003年に36万円かかった。"),
    ("en-hi", "It cost 500,000 rupees.", "इसकी कीमत 5 करोड़ 1 रुपये थी।"),
    ("en-de", "It cost 5 million euros.", "Es kostete 5 Milliarden Euro."),
    ("en-de", "It cost 1.5 billion euros.", "Es kostete 15 Milliarden Euro."),
    ("en-th", "It began in 1970.", "เริ่มขึ้นเมื่อ พ.ศ. 2514"),
    ("en-de", "It began in 1970.", "Es begann im Jahr 2513."),
])  # fmt: skip
def test_other_values_are_other_numbers(languages: str, source: str, target: str) -> None:
    assert reason(cleaner(*languages.split("-"), **NOTHING | {"numbers": True}), source, target) == "numbers"


def test_an_unknown_language_is_refused_where_it_would_be_identified() -> None:
    with pytest.raises(NmtError, match="the language xx cannot be identified; give --max-other-language 1"):
        cleaner("en", "xx")
    assert reason(cleaner("en", "xx", max_other_language=1.0), SENTENCE, SATZ) == "kept"


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "mac_roman", "cp1250"])
def test_broken_encodings_are_mended_or_dropped(encoding: str) -> None:
    broken = PHRASE.encode().decode(encoding)
    pairs, (code,), _ = FRENCH([[broken], [SATZ]])
    assert (pairs.sides[0], code) == ([PHRASE], -1)
    assert reason(cleaner("fr", encoding="drop"), broken, SATZ) == "encoding"
    pairs, _, _ = cleaner("fr", encoding="keep", max_other_language=1.0)([[broken], [SATZ]])
    assert pairs.sides[0] == [broken]


def test_text_is_normalised_only_where_asked() -> None:
    line = "“Ａ”  of\tit’s  kind"
    for forms, expected in (
        ((), line),
        (("spaces",), "“Ａ” of it’s kind"),
        (("quotes",), '"Ａ"  of\tit\'s  kind'),
        (("invisible",), line),
        (("unicode", "spaces", "quotes"), '"A" of it\'s kind'),
    ):
        pairs, _, _ = cleaner(normalize=forms)([[line], [SATZ]])
        assert pairs.sides[0] == [expected]
    for forms in (("spaces", "invisible"), ("invisible", "spaces")):
        assert cleaner(normalize=forms).changed("\ufeff a \u200b b") == "a b"


@pytest.mark.parametrize("line, expected", [
    ("\ufeffIt is con\u00adve\u00adnient.", "It is convenient."),
    ("One\u200btwo\ufeff three\u2060 four\u200d", "Onetwo three four"),
    ("Auf\u200clage \u200d1", "Auflage 1"),
    ("می\u200cخواهم", "می\u200cخواهم"),  # here a joiner is part of the spelling
    ("ക്\u200d", "ക്\u200d"),
    ("👨\u200d👩\u200d👧 ❤️\u200d🔥", "👨\u200d👩\u200d👧 ❤️\u200d🔥"),
])  # fmt: skip
def test_characters_of_no_width_are_removed_where_asked(line: str, expected: str) -> None:
    assert cleaner(normalize=("invisible",)).changed(line) == expected
    assert DEFAULTS.changed(line) == line


@given(st.lists(st.sampled_from(["la", "ha", "a", "hallo", "b2"]), max_size=14))
@example(["ha", "la", "la", "ha"] * 2)
def test_all_direct_repetitions_are_found(words: list[str]) -> None:
    spans = [(i, k) for i in range(len(words)) for k in range(1, len(words))]
    repeated = [words[i : i + k] for i, k in spans if words[i : i + k] == words[i + k : i + 2 * k]]
    thrice = any(len(set(words[i : i + 3])) == 1 for i in range(len(words) - 2))
    expected = thrice or any(len(phrase) > 1 or phrase == ["hallo"] for phrase in repeated)
    clean = cleaner("en", None, **NOTHING | {"repetition": True})
    assert reason(clean, f"x {', '.join(words)}") == ("repetition" if expected else "kept")


def test_one_language_has_no_rules_about_pairs() -> None:
    clean = cleaner("en", None)
    assert reason(clean, SENTENCE) == "kept"
    assert reason(clean, "The years 1998 and 2003.") == "kept"
    assert reason(clean, "Der Bericht " * 6) == "repetition"


def test_what_a_rule_measures_is_counted_before_it_drops() -> None:
    _, _, histograms = DEFAULTS([[SENTENCE, "x" * 1700, SENTENCE], [SATZ, "x" * 10, "Ja."]])
    length_histogram = {name: n for name, n in histograms.items() if name.startswith("max_characters")}
    assert length_histogram == {"max_characters 1": 2, "max_characters 34": 1}
    assert sum(n for name, n in histograms.items() if name.startswith("max_ratio")) == 2


# What is measured

OF_ANY_SCRIPT = ("COMBINING", "VARIATION", "MODIFIER")
LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=40), min_size=1)


@given(LINES)
def test_characters_are_counted(lines: list[str]) -> None:
    measures = measure(lines, "en")
    for n, line in enumerate(unicodedata.normalize("NFC", line) for line in lines):
        categories = Counter(map(unicodedata.category, line))
        letters = [unicodedata.normalize("NFKC", c)[0] for c in line if unicodedata.category(c)[0] in "LM"]
        names = [unicodedata.name(c, "?") for c in letters]
        names = [name for name in names if not name.startswith(OF_ANY_SCRIPT)]
        assert measures.length[n] == len(line)
        assert measures.letters[n] == len(names)
        assert measures.in_script[n] == sum(name.startswith("LATIN") for name in names)
        invisible = sum(is_blank(c) and unicodedata.category(c) == "Cf" for c in line)
        assert measures.spaces[n] == sum(categories[c] for c in ("Zs", "Zl", "Zp")) + line.count("\t") + invisible
        assert measures.digits[n] == categories["Nd"]
        assert (measures.control[n] > 0) == any(
            (unicodedata.category(c) in ("Cc", "Co", "Cn") and c != "\t" and not "\U0001f000" <= c < "\U0001ffff")
            or c == "\ufffd"
            for c in line
        )


@given(LINES)
def test_lines_share_a_hash_if_their_letters_and_digits_are_the_same(lines: list[str]) -> None:
    def said(line: str) -> str:
        kept = (c for c in line if unicodedata.category(c)[0] in "LMN")
        kept = (c for c in kept if not unicodedata.name(plain(c), "?").startswith(OF_ANY_SCRIPT))
        return "".join(map(key, kept))

    def plain(c: str) -> str:
        return unicodedata.normalize("NFKC", c)[0]

    def key(c: str) -> str:
        if unicodedata.category(c) == "Nd":
            return str(unicodedata.digit(c))
        european = unicodedata.category(c)[0] != "N" and re.match(
            "LATIN|GREEK|CYRILLIC", unicodedata.name(plain(c), "?")
        )
        return (unicodedata.normalize("NFKD", c) if european else c).casefold()[0]

    lines = [*lines, *(f" {line.upper().lower()}!" for line in lines), "a1", "A-1", "1a", "½ a", "¼ a", "Ⅱ", "ⅱ"]
    hashes = measure(lines, "en").hash
    keys = [said(unicodedata.normalize("NFC", line)) for line in lines]
    assert len(set(hashes.tolist())) == len(set(keys))
    assert len(set(zip(hashes.tolist(), keys, strict=True))) == len(set(keys))
    assert all((line_hash == 0) == (key == "") for line_hash, key in zip(hashes.tolist(), keys, strict=True))


@given(LINES, LINES)
def test_the_reason_of_a_pair_does_not_depend_on_its_company(first: list[str], second: list[str]) -> None:
    size = min(len(first), len(second))
    sides = [first[:size], second[:size]]
    clean = cleaner(max_other_language=1.0)
    _, together, _ = clean(sides)
    assert [reason(clean, *pair) for pair in zip(*sides, strict=True)] == [
        REASONS[code] if code >= 0 else "kept" for code in together
    ]
