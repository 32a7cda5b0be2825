"""Three translators without a model, for files of any format: they are cut, aligned and joined as by a real one.

`unchanged` returns each sentence as it is, so that the file must be equal. `capitals` changes letters but no word that
must stay, so that nothing but letters of the text may differ. `reversed_words` moves words, and aligns them.
"""

import re
from collections.abc import Callable
from itertools import pairwise

from checkpoints import small_codec

from nmt.documents.document import ReadOptions, read_document
from nmt.text.protected import Protected
from nmt.text.words import RAW_WORD
from nmt.translate.units import Sentence, Translation, Unit, UnitMaker

Translator = Callable[[Sentence], Translation]


def _words(text: str) -> list[str]:
    return RAW_WORD.findall(text)


def _in_order(text: str, sentence: Sentence) -> Translation:
    """Returns a translation whose words are those of the sentence, in its order."""
    links = [(i, i) for i in range(min(len(_words(text)), len(_words(sentence.text))))]
    return Translation(text, 0.0, [], [], alignment=links)


def unchanged(sentence: Sentence) -> Translation:
    return _in_order(sentence.text, sentence)


def capitals(sentence: Sentence) -> Translation:
    text, end = "", 0
    for start, stop in [*((span.start, span.stop) for span in sentence.protected), (len(sentence.text),) * 2]:
        text += sentence.text[end:start].upper() + sentence.text[start:stop]
        end = stop
    return _in_order(text, sentence)


def reversed_words(sentence: Sentence) -> Translation:
    """Words that must stay are moved as a whole, with what touches them."""
    text, kept = sentence.text, [(span.start, span.stop) for span in sentence.protected]
    cuts = [gap.span() for gap in re.finditer(r"\s+", text, re.ASCII)]
    cuts = [(start, stop) for start, stop in cuts if not any(a < stop and start < b for a, b in kept)]
    groups = [text[a:b] for (_, a), (b, _) in pairwise([(0, 0), *cuts, (len(text), 0)])]
    sizes = [len(_words(group)) for group in groups]
    word_indexes = [list(range(sum(sizes[:i]), sum(sizes[: i + 1]))) for i in range(len(groups))]
    sources = [index for group in reversed(word_indexes) for index in group]
    return Translation(" ".join(reversed(groups)), 0.0, [], [], alignment=[(s, t) for t, s in enumerate(sources)])


def translated_unit(unit: Unit, translator: Translator, source_lang: str = "en", target_lang: str = "de") -> str:
    unit, translations = _translated(unit, translator, source_lang, target_lang)
    return unit.translated(translations, target_lang)


def translated_file(
    data: bytes, form: str, translator: Translator, source_lang: str = "en", target_lang: str = "de"
) -> bytes:
    """Returns the file with the translation of each sentence."""
    document = read_document(data, form, ReadOptions(f"x.{form}", source_lang, target_lang))
    units = (_translated(unit, translator, source_lang, target_lang) for unit in document.passages)
    return document.write([unit.translated_tokens(translations, target_lang) for unit, translations in units])


def _translated(
    unit: Unit, translator: Translator, source_lang: str, target_lang: str
) -> tuple[Unit, list[Translation]]:
    codec = small_codec(source_lang=source_lang, target_lang=target_lang)
    unit = UnitMaker(codec.config, Protected(), cut="sentence").complete(unit)
    return unit, list(map(translator, unit.sentences))
