"""Documents that are translated, and their different sentences, each of which is translated once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nmt.documents.document import Document, ReadOptions, read_document
from nmt.memories.matching import Match
from nmt.text.languages import WITHOUT_FULL_STOPS, has_spaces, is_among
from nmt.text.protected import unprotected
from nmt.text.sentences import without_added_stop
from nmt.text.words import RAW_WORD, has_letters
from nmt.translate.units import Sentence, Translation, Unit, UnitMaker


def sentence_unit(sentence: Sentence, maker: UnitMaker) -> Unit:
    """Returns a unit that consists of one sentence, with the matches and terms that `maker` finds."""
    place = f"the sentence {sentence.raw:.80}"
    return maker.complete(Unit(sentence.text, place=place, earlier=sentence.earlier, sentences=[sentence]))


class Sentences:
    """The distinct sentences of documents.

    Sentences are distinct if their texts, tags, protected words or context differ, or if only one of them has elements.

    Args:
        maker: cuts passages into sentences.
        has_known: whether elements make sentences distinct, because there is a memory or glossary, which does not say
            where they belong. The model translates both alike.
    """

    def __init__(self, maker: UnitMaker, options: ReadOptions, *, has_known: bool) -> None:
        self._maker, self._options, self._has_known = replace(maker, cuts_only=True), options, has_known
        # Translations, alignments, and matches. As bytes, an alignment takes a tenth of the RAM.
        self._translations: dict[Sentence, tuple[Translation, bytes, Sequence[Match]]] = {}
        self.distinct: dict[Sentence, None] = {}
        self.has_markup = False  # whether a passage is marked up

    def read(self, data: bytes, form: str, name: str) -> Document:
        """Returns the document in a file with the sentences of its passages. Raises NmtError if the file is damaged."""
        document = read_document(data, form, self._options._replace(name=name))
        units, texts, most = list[Unit](), list[str](), self._maker.text.context
        for passage in document.passages:
            units.append(self._maker.complete(replace(passage, earlier=tuple(texts))))
            texts = [*texts, *(sentence.text for sentence in units[-1].sentences)][-most:] if most else []
        self.has_markup |= any(unit.content is not None for unit in units)
        self.distinct |= dict.fromkeys(self._key(sentence) for unit in units for sentence in unit.sentences)
        return replace(document, passages=units)

    def _key(self, sentence: Sentence) -> Sentence:
        has_elements = sentence.has_elements and self._has_known
        sentence = sentence._replace(line=0, start=0, has_elements=has_elements)
        return sentence._replace(matches=(), similar="", terms=(), entry=None)

    def set_translation(self, sentence: Sentence, translation: Translation, matches: Sequence[Match]) -> Translation:
        """Keeps the translation of a distinct sentence, and its matches, for `written`. Returns what it writes."""
        options, text = self._options, unprotected(sentence.text, sentence.protected)
        is_by_model = translation.origin == "model"
        if is_by_model:  # which has too little context for one or two words, and ends all sentences
            is_short = len(text.split()) <= 2 and has_letters(text) and has_spaces(options.source_lang)
            doubts = (*translation.doubts, "one or two words") if is_short and options.doubtful else translation.doubts
            new = translation.text
            if not is_among(options.source_lang, WITHOUT_FULL_STOPS):
                new = without_added_stop(sentence.text, new, options.target_lang)
            translation = translation._replace(text=new, doubts=doubts)
        if options.doubtful_stays and is_by_model and translation.is_doubtful(options.doubtful):
            words = [(len(sentence.tags) + i, i) for i in range(len(RAW_WORD.findall(sentence.text)))]
            translation = translation._replace(text=sentence.text, alignment=words)
        alignment = np.array(translation.alignment or (), np.int32).tobytes()
        self._translations[sentence] = translation._replace(alignment=None, pieces=[], log_probs=[]), alignment, matches
        return translation

    def written(self, document: Document) -> tuple[bytes, list[tuple[Sentence, Translation]]]:
        """Returns the file of a document with the translations, and its sentences with theirs."""
        passages, offers, pairs = [], list[Sequence[Match]](), list[tuple[Sentence, Translation]]()
        for unit in document.passages:
            translations, matches = list[Translation](), list[Sequence[Match]]()
            for sentence in unit.sentences:
                translation, stored, sentence_matches = self._translations[self._key(sentence)]
                alignment = [(i, j) for i, j in np.frombuffer(stored, np.int32).reshape(-1, 2).tolist()]
                translations.append(translation._replace(alignment=alignment))
                matches.append(sentence_matches)
                pairs.append((sentence, translation))
            options = self._options
            passages.append(unit.translated_tokens(translations, options.target_lang, options.doubtful))
            offers.append(matches[0] if len(matches) == 1 else ())
        if document.offer:
            document.offer(offers)
        return document.write(passages), pairs
