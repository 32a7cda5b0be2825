"""The bodies of requests and answers, as the page /docs and /openapi.json describe them.

Routes that wait for work build their answers as dicts, without the fields that have default values.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import product
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from nmt.config import SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.serving.errors import TooLargeError
from nmt.translate.units import Doubt

SEARCH_FIELDS = [field for field in fields(SearchConfig) if field.name not in ("batch_tokens", "mbr")]
# A translation may be this many pieces longer than its source at most.
_LARGEST_OFFSET = 256
# A line is translated in parts of at least this many pieces, so that there are not too many parts.
_LEAST_PART = 16
MOST_CONTEXT = 20  # sentences before a text
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
_JSON_LIMITS = {"at_least": "minimum", "above": "exclusiveMinimum", "at_most": "maximum", "below": "exclusiveMaximum"}
OneLine = Annotated[str, AfterValidator(str.strip)]
_Phrase = str | Annotated[list[str], Field(max_length=16, description="Alternatives.")]
_Sign = Literal["=", "-", "+"]
ModelName = Annotated[str | None, Field(description="Name of the model; may be left out if there is only one.")]


def search_config(values: Mapping[str, Any], limits: ServeConfig) -> SearchConfig:
    """Returns the options of search in a request."""
    if unknown := values.keys() - {field.name for field in SEARCH_FIELDS}:
        raise NmtError(f"{min(unknown)!r:.60} is no field of this request; /docs lists the fields")
    tokens_at_once = 4 * limits.batch_tokens  # padding included; only long lines have more
    search = SearchConfig(**{"beam": min(SearchConfig.beam, limits.max_beam), **values}, batch_tokens=tokens_at_once)
    for name, limit in (
        ("beam", limits.max_beam),
        ("samples", limits.max_beam),
        ("max_length_offset", _LARGEST_OFFSET),
        ("max_source_length", SearchConfig.max_source_length),
    ):
        if (value := getattr(search, name)) > limit:
            raise NmtError(f"{name} must be at most {limit} on this server, but is {value}")
    if (length := search.max_source_length) < _LEAST_PART:
        raise NmtError(f"max_source_length must be at least {_LEAST_PART} on this server, but is {length}")
    return search


def check_text(texts: Sequence[str], limits: ServeConfig) -> None:
    """Raises an error if a request has too much text, or text that is no Unicode."""
    characters = sum(map(len, texts))
    if characters > (most := limits.max_characters):
        message = f"the request has {characters:,} characters of text, but at most {most:,} are allowed"
        raise TooLargeError(f"{message}; send it in parts")
    if any(_SURROGATE.search(text) for text in texts):
        raise NmtError("the text has half of a surrogate pair, such as \\ud800; send whole characters")


def _with_search_options(schema: dict[str, Any]) -> None:
    """Adds the options of search, which `SearchConfig` declares and checks."""
    for declared in SEARCH_FIELDS:
        kind = (get_args(declared.type) or (declared.type,))[0]
        is_choice = get_origin(declared.type) is Literal
        schema["properties"][declared.name] = {
            **({"enum": list(get_args(declared.type))} if is_choice else {"type": _JSON_TYPES[kind]}),
            "default": declared.default,
            "description": declared.metadata["help"].replace("--", ""),
            **{_JSON_LIMITS[name]: limit for name, limit in declared.metadata["limits"].items()},
        }
    schema["properties"]["max_source_length"]["minimum"] = _LEAST_PART
    schema["additionalProperties"] = False


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class TranslateBody(BaseModel):
    """Text to translate, and the options of search."""

    model_config = ConfigDict(strict=True, extra="allow", json_schema_extra=_with_search_options)

    source: str | list[str] = Field(description="A text, or a list of texts. A text may have several lines.")
    model: ModelName = None
    source_lang: str | None = Field(None, description="Chooses model and direction, with target_lang; or `auto`.")
    target_lang: str | None = Field(None, description="Language of the translation; with source_lang.")
    prefix: str = Field("", description="How the translation must begin. The text must be a single sentence.")
    constraints: list[_Phrase] = Field(
        [], max_length=16, description="What the translation must contain. The text must be a single sentence."
    )
    context: list[str] = Field(
        [], max_length=MOST_CONTEXT, description="Sentences before each text, for a model of context."
    )
    glossary: str | None = Field(None, description="Name of a glossary; translations have the terms of the sentences.")
    memory: str | None = Field(None, description="Name of a memory: its sentences come from it, others get matches.")
    markup: Literal["html", "xml"] | None = Field(None, description="The texts are HTML or XML; so are translations.")
    pieces: bool = Field(True, description="Also return pieces, log P and words; ctranslate2 is faster without.")
    split: bool = Field(True, description="Split lines into sentences. Otherwise, each line is one sentence.")


class DetectBody(_Body):
    """Text whose language is asked for."""

    source: str | list[str] = Field(description="A text, or a list of texts.")
    target_lang: str | None = Field(
        None, description="Of unclear languages, the one that can be translated into it is taken, as `auto` does."
    )


class TextPair(_Body):
    """A source sentence and a translation."""

    source: str
    target: str


class ModelBody(_Body):
    """What chooses a model and its direction."""

    model: ModelName = None
    source_lang: str | None = Field(None, description="As for /translate; `auto` is for texts and documents only.")
    target_lang: str | None = Field(None, description="As for /translate.")


class DocumentFields(ModelBody):
    """The file name of a document, whose end is the format, and the languages."""

    name: str = Field(max_length=255, description="Name of the file, such as report.docx.")
    doubtful: float = Field(
        0,
        ge=0,
        le=1,
        strict=False,
        description="Mark sentences whose confidence is lower, as `nmt translate-file --doubtful` does.",
    )
    glossary: str | None = Field(None, description="As for /translate.")
    memory: str | None = Field(None, description="As for /translate.")


class ScoreBody(ModelBody):
    """Translations to score."""

    pairs: list[TextPair]


class AlternativesBody(ModelBody):
    """A source sentence and the beginning of its translation."""

    source: str
    prefix: str = Field("", description="The beginning of the translation. Behind a space, only new words are listed.")
    count: int = Field(8, ge=1, le=32, description="Number of alternatives.")


class AttentionBody(ModelBody, TextPair):
    """A source sentence and a translation."""


class CorrectionBody(_Body):
    """The translation of a sentence, as a person has corrected it."""

    source: OneLine = Field(description="The sentence, on one line.")
    target: OneLine = Field(description="Its right translation, on one line.")
    machine_translation: str = Field("", description="What the server had translated.")
    source_lang: str
    target_lang: str


class Correction(CorrectionBody):
    """A correction that the server has stored."""

    id: str
    time: AwareDatetime = Field(description="When it was stored.")
    taken_back: bool = False


class TermEntry(BaseModel):
    """A term of the glossary in a sentence."""

    source: str
    targets: list[str] = Field(description="The forms of its translation.")
    used: str | None = Field(description="The form that the translation has.")


class HypothesisEntry(BaseModel):
    """A translation of a sentence."""

    text: str
    origin: Literal["memory", "glossary"] | None = Field(None, description="What has the translation, without scores.")
    confidence: float | None = Field(
        None, description="Estimate of its chrF, from 0 to 1; if the model is calibrated for this search."
    )
    score: float | None = Field(None, description="log P over the length penalty.")
    log_prob: float | None = Field(None, description="Natural log P; with pieces.")
    pieces: list[str] | None = None
    log_probs: list[float] | None = Field(None, description="log P of each piece, and of the end of each part.")
    alignment: str | None = Field(None, description="Links of source words to target words; with alignments.")
    segments: list[str] | None = Field(None, description="`text` cut into words, with spaces; with alignments.")
    words: list[int] | None = Field(None, description="The number of each piece's segment, or -1; with alignments.")
    terms: list[TermEntry] = Field([], description="The terms of the glossary in the sentence.")
    unmet: bool = Field(False, description="Whether a constraint or a term is missing.")
    doubts: list[Doubt] = Field([], description="Why it is likely to be wrong, whatever its confidence.")


class MatchEntry(BaseModel):
    """A similar sentence of a memory and its translation."""

    source: str
    target: str = Field(description="With the numbers and placeholders of the sentence if only these differ.")
    score: float = Field(description="The similarity of the sources; 1 if the target translates the sentence.")
    difference: list[tuple[_Sign, str]] = Field(description="`=` in both, `-` in the memory, `+` in the sentence.")


class SentenceEntry(BaseModel):
    """A sentence of a text, and its translations, best first."""

    line: int = Field(description="Number of its line in the text, from 0.")
    source: str
    hypotheses: list[HypothesisEntry]
    memory: list[MatchEntry] = Field([], description="Matches of the memory, the most similar first.")


class TextEntry(BaseModel):
    """The translation of a text."""

    text: str = Field(description="The best translations of the sentences, with the line breaks of the source.")
    sentences: list[SentenceEntry]
    detected: str | None = Field(None, description="The source language; with source_lang `auto`.")


class TranslateAnswer(BaseModel):
    """The translation of each text."""

    model: str | None = Field(None, description="The model, if only one was used.")
    models: list[str] = Field(description="The models that were used. A text in the target language needs none.")
    translations: list[TextEntry]


class DocumentAnswer(BaseModel):
    """The document that was uploaded."""

    id: str


class ConfidenceEntry(BaseModel):
    """A sentence of a document whose translation has a confidence or doubts."""

    source: str
    target: str
    confidence: float | None = Field(None, description="An estimate of its chrF, if the model is calibrated.")
    doubts: list[Literal["missing terms"] | Doubt] = Field([], description="Why it is likely to be wrong anyway.")


class DocumentStateAnswer(BaseModel):
    """How far a document is translated."""

    state: Literal["waiting", "translating", "done", "failed"]
    sentences: int = Field(description="The number of different sentences; 0 while the document waits.")
    done: int = Field(description="How many of them are translated.")
    error: str | None = Field(None, description="Why the document cannot be translated.")
    left: str = Field("", description="What of the document stays as it is, with counts and reasons.")
    from_memory: int = Field(0, description="How many translations are from a memory.")
    terms: int = Field(0, description="How often the translations have terms of the glossary.")
    least_confident: list[ConfidenceEntry] = Field(
        [], description="Those with doubts first, and then those of the least confidence."
    )


class CorrectionsAnswer(BaseModel):
    """The latest corrections."""

    corrections: list[Correction] = Field(description="The latest first, without those that were taken back.")
    total: int = Field(description="The number of all corrections.")
    skipped: int = Field(0, description="The number of lines of the file that are no records.")


class Detection(BaseModel):
    """The most probable language of a text."""

    language: str
    probability: float


class DetectAnswer(BaseModel):
    """The language of each text."""

    detected: list[Detection]


class ScoreEntry(BaseModel):
    """The score of a translation."""

    log_prob: float
    pieces: list[str]
    log_probs: list[float]
    alignment: str | None = Field(None, description="Only with --engine pytorch.")


class ScoreAnswer(BaseModel):
    """The score of each pair."""

    model: str
    scores: list[ScoreEntry]


class AlternativeEntry(BaseModel):
    """A word that the model considered."""

    word: str
    log_prob: float = Field(description="log P of the pieces of the word.")
    prefix: str = Field(description="The given prefix with this word.")
    text: str = Field(description="A translation that begins with this prefix.")


class AlternativesAnswer(BaseModel):
    """What may follow the prefix, the most probable first."""

    model: str
    alternatives: list[AlternativeEntry]


class AttentionKind(BaseModel):
    """The weights of one kind of attention."""

    name: str
    query_side: str
    key_side: str
    about: str
    queries: list[str] = Field(description="The pieces at the positions that attend.")
    keys: list[str] = Field(description="The pieces at the positions that are attended to.")
    layers: int
    heads: int
    weights: str = Field(description="Base64 of little-endian float32, in the order layers, heads, queries, keys.")


class AttentionAnswer(BaseModel):
    """The attention weights of a sentence pair."""

    kinds: dict[str, AttentionKind] = Field(description="By name: cross, encoder and decoder.")
    shown: dict[str, str | int] = Field(description="Kind, layer and head that a page shows first.")


class ModelEntry(BaseModel):
    """A model that is served."""

    name: str
    source_lang: str = Field(description="`mul` if the model has several, and so with target_lang.")
    target_lang: str
    parameters: int
    engine: str
    examples: list[str] = Field(description="Two sentences of its validation, if its run folder has them.")


class LanguageEntry(BaseModel):
    """A language that source_lang or target_lang may name."""

    code: str
    name: str = Field(description="In English.")
    identified: bool = Field(description="Whether source_lang `auto` can identify it.")
    spaces: bool = Field(description="Whether spaces separate its words.")


class Directions(BaseModel):
    """What is translated: each source language into each other target language. The first entry of a pair is used."""

    source_langs: list[str]
    target_langs: list[str]
    models: list[str] = Field(description="The models that translate in turn.")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of languages. A model of a single pair may have one language on both sides."""
        pairs = list(product(self.source_langs, self.target_langs))
        return [(source, target) for source, target in pairs if source != target or len(pairs) == 1]


class ModelsAnswer(BaseModel):
    """All models."""

    models: list[ModelEntry]
    languages: list[LanguageEntry]
    directions: list[Directions]
    attention: bool = Field(description="Whether /attention is available with this engine.")
    glossaries: list[str] = Field(description="The names of the glossaries that requests can use.")
    memories: list[str] = Field(description="The names of the memories that requests can use.")
    corrections: bool = Field(description="Whether the server stores corrections.")
    documents: list[str] = Field(description="The last parts of the names of files that /documents takes.")
    max_document_mib: int
    max_beam: int


class Failure(BaseModel):
    """Why a request failed."""

    error: str


class DeepLFailure(BaseModel):
    """Why a request failed, as DeepL has it."""

    message: str
