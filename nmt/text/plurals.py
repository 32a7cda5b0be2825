"""Which form of a word a language has with a number."""

from collections.abc import Callable
from functools import cache
from gettext import c2py

from nmt.text.languages import base_language

_FORMS = "nplurals={}; plural=({});"
_SLAVIC = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2"
# The plural forms of languages by the rules in the manual of gettext.
_PLURALS = {
    "id ja km ko lo ms my th vi zh": _FORMS.format(1, "0"),
    "fa fr hi oc pt_br": _FORMS.format(2, "n > 1"),
    "is": _FORMS.format(2, "n%10!=1 || n%100==11"),
    "be bs hr ru sr uk": _FORMS.format(3, f"n%10==1 && n%100!=11 ? 0 : {_SLAVIC}"),
    "pl": _FORMS.format(3, f"n==1 ? 0 : {_SLAVIC}"),
    "cs sk": _FORMS.format(3, "n==1 ? 0 : n>=2 && n<=4 ? 1 : 2"),
    "lt": _FORMS.format(3, "n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2"),
    "lv": _FORMS.format(3, "n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2"),
    "ro": _FORMS.format(3, "n==1 ? 0 : n==0 || (n%100 > 0 && n%100 < 20) ? 1 : 2"),
    "ga": _FORMS.format(3, "n==1 ? 0 : n==2 ? 1 : 2"),
    "sl": _FORMS.format(4, "n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3"),
    "ar": _FORMS.format(6, "n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5"),
}
_OTHERS = _FORMS.format(2, "n != 1")


def plural_forms(language: str) -> str:
    """Returns the number of plural forms of a language and the rule for them, as the header of a PO file has them."""
    codes = (language.replace("-", "_").lower(), base_language(language))
    known = (forms for code in codes for languages, forms in _PLURALS.items() if code in languages.split())
    return next(known, _OTHERS)


@cache
def plural_form(language: str) -> Callable[[int], int]:
    """Returns a function from a number to that of its plural form in a language."""
    return c2py(plural_forms(language).partition(" plural=")[2].removesuffix(";"))
