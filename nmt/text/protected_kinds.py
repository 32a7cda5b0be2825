"""The kinds of words that stay as they are in translations, each with its pattern and examples."""

from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of protected words.

    Attributes:
        name: what `ProtectedSpan.kind` says. Several patterns may find words of a kind.
        pattern: for `regex`, with its flags VERBOSE and DOTALL, and without a space that counts. Possessive and
            limited repetition keep the time linear.
        examples: texts, in which ⟦brackets⟧ that are not part of them are around each word that is protected.
    """

    name: str
    pattern: str
    examples: tuple[str, ...]


# Every text with a protected word has one of these, so a new kind may need another one.
SIGNS = r"[*@/\\{<\[$%#&:_\u20e3\u203c-\u3299\ufe0f\U0001f000-\U0001ffff]|[wW]{3}\."

# The rest of an address. Brackets belong to it in pairs, and punctuation only if more follows.
_REST = r"""
    (?:[^\s<>"'()\[\]{}`|«»“”。，！？；：、（）「」『』《》—]|'(?=\w)
      |\([^\s<>"()]*+\)|\[[^\s<>"\[\]]*+\]|\{\{?[\w.]*+\}?\})*
    (?<![.,;:!?*…。，！？；：、])"""
_LETTERS = "A-Za-zÀ-ɏЀ-ӿ"  # of names and hosts; other scripts write no spaces around addresses
_NAME = rf"{_LETTERS}Ͱ-Ͽ_"
_MAIL = rf"-{_LETTERS}0-9_+%"
_KEY = rf"(?<![\p{{L}}\p{{N}}_@%])-?@[{_NAME}]"  # how a citation, a reference, a package or a name begins
_CITED = rf"[^\[\]]{{0,200}}{_KEY}[^\[\]]{{0,200}}"
_TAGS = "\U000e0020-\U000e007f"  # of flags
_LENGTH = "(?:hh?|ll?|I64|[qLjzt])?"  # of an argument of printf

KINDS = (
    Kind("address", rf"""(?<![A-Za-z0-9_+.-])[A-Za-z][A-Za-z0-9+.-]{{1,15}}+://(?=\w|\[|/\w){_REST}""", (
        "See ⟦https://github.com/a/b⟧ in Rome.",
        "(⟦https://en.wikipedia.org/wiki/Python_(Sprache)⟧)",
        "⟦http://x.org/a=⟧, ⟦http://x.org/b-⟧ and ⟦ftp://files.example.org/x⟧!",
        "请看⟦https://a.com/b⟧，谢谢。⟦https://a.com/c⟧—really ⟦file:///etc/passwd⟧ ⟦https://[::1]/x⟧",
    )),
    Kind("address", rf"""(?<![A-Za-z0-9_@.-])(?:[wW]{{3}}\.|[mM]ailto:|MAILTO:)(?=\w){_REST}""", (
        "“⟦https://x.org/q?c=D.E&f=1#top⟧”. «⟦www.example.org⟧»; ⟦mailto:a@b.co⟧?",
    )),
    Kind("address", rf"""
        (?<![\w.-])(?:(?:tel|sms|geo):(?=\+?\d)|data:(?=\w+/)|urn:(?=\w+:\w)|magnet:(?=\?)){_REST}""", (
        "⟦tel:+491234⟧ ⟦magnet:?xt=a⟧ ⟦data:image/png;base64,AAA=⟧ ⟦urn:isbn:123⟧; Tel: 12, data: a/b",
    )),
    Kind("address", rf"""
        (?<![{_MAIL}.'])@?[{_MAIL}](?:[{_MAIL}.']*[{_MAIL}])?@(?:[{_LETTERS}0-9-]+\.)+[{_LETTERS}0-9-]+
        (?::[\w.~-]*+/[\w./~-]*\w)?  # the path of a repository""", (
        "Write to ⟦info@example.org⟧. ⟦first_last@mail.example.co.uk⟧, not me@home",
        "联系⟦a@b.com⟧谢谢 ⟦O'Brien@example.com⟧ a@ b.com ⟦a@b.com⟧: yes/no",
        "⟦ü@x.de⟧ ⟦a@münchen.de⟧ ⟦git@github.com:a/b.git⟧ ⟦@user@mastodon.social⟧",
    )),
    Kind("address", rf"""
        (?<![A-Za-z0-9_@./:-])(?://)?
        (?:(?:[A-Za-z0-9][A-Za-z0-9-]*+\.)+[a-z]{{2,}}+|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|localhost(?=:\d|/))
        (?:(?::\d+)?/(?!/){_REST}|(?<=\d|localhost):\d+)""", (
        "At ⟦github.com/user/repo⟧ or ⟦example.org:8080/a⟧; km/h, and/or, z.B./d.h., 10:30.",
        "⟦localhost:8080/a⟧ ⟦192.168.1.1/admin⟧ ⟦10.0.0.1:80⟧ ⟦//cdn.x.org/a.js⟧, localhost, 1.2.3",
        "U.S.News/World, Mr.Smith/Jones; Mr. Smith's; e.g. this",
    )),
    Kind("address", r"""(?<=(["'`]))[A-Za-z]:\\[^\n<>"'`|?*]++(?=\1)|(?<!\w)[A-Za-z]:\\[^\s<>"|?*]++""", (
        "⟦C:\\Users\\new⟧ and '⟦C:\\My files⟧'",
    )),
    Kind("placeholder", r"""
        \{{2,4}(?!(?:PLURAL|GENDER):[^{}]*\|)(?:(?!\}\}).){1,500}+\}{2,4}|'\{[^{}'\n]*\}'|[$#%]?\{\s*+(?!(?:PLURAL|GENDER):[^{}]*\|)[^{}\s]*+\s*+\}
        |\{%(?:(?!%\}).){0,500}+%\}|\{[#].{0,200}?[#]\}|[$#]\{[^{}\n]{1,200}+\}
        |\{\s*+[\w.]++\s*+,\s*+(?:number|date|time|spellout|ordinal|duration)\b[^{}]*+\}""", (
        "⟦%{user}⟧ ⟦#{user}⟧ ⟦${user}⟧ ⟦{user}⟧ ⟦{ user }⟧ ⟦{0:.2f}⟧ ⟦{user.name!r}⟧ It''s a ⟦'{name}'⟧ of ⟦{n}⟧",
        "⟦{{ user }}⟧ ⟦{{{raw}}}⟧ ⟦{{{{x}}}}⟧ ⟦{% if x < 3 %}⟧yes⟦{% endif %}⟧ ⟦${a ? 'x' : 'y'}⟧ ⟦#{a.b 'x y'}⟧",
        "⟦{{ a\nb }}⟧ and ⟦{ a\u00a0}⟧ and ⟦{  b  }⟧ {see below} [note] (a) 5'10\" and 3 * 4 = 12",
    )),
    Kind("placeholder", r"""
        \$t\([^()\n]*+\)|(?<![\w$])\$[A-Za-z_]\w*+\$(?!\w)
        # neither money, such as $million, nor the beginning of a formula
        |(?<![\w$])\$(?![bmt]r?(?:illio)?n\b)[a-z_]\w++(?![^\n$]*[^\s$]\$(?!\w)|\$)""", (
        "⟦$t(a.b)⟧ ⟦$NAME$⟧ ⟦$name⟧, ⟦$a_b⟧; $million $US $5bn $x + $ab + c$; $5 and 5 $US for £3",
    )),
    # Forms of MediaWiki around their text
    Kind("placeholder", r"""
        \{\{(?:PLURAL|GENDER):[^|{}]{0,99}\||(?<=\{\{(?:PLURAL|GENDER):[^{}]{0,400})(?:\||\}\})""", (
        "⟦{{PLURAL:$1|⟧Email⟦|⟧Emails⟦}}⟧ of ⟦{{GENDER:$2|⟧him⟦|⟧her⟦}}⟧; a | b }}",
    )),
    # Tags of Mailchimp, and statements of Angular and Blade
    Kind("placeholder", r"""
        \*\|[A-Z][^|*\n]{0,99}\|\*|\{!!.{0,200}?!!\}
        |@(?:if|else\sif|elseif|for|foreach|forelse|switch|case|defer|unless|isset)\s?
         \((?:[^()]|\([^()]*\)){0,400}+\)""", (
        "Hi ⟦*|FNAME|*⟧, ⟦*|IF:VIP|*⟧free⟦*|END:IF|*⟧; ⟦{!! $a->b !!}⟧ ⟦@if (user.isIn())⟧ { yes it is } 3 * 4",
        "⟦@foreach($a as $b)⟧",
    )),
    Kind("placeholder", r"""@(?:\.\w++)?:(?:\([\w.]++\)|[\w.]*\w)""", ("⟦@:key⟧ ⟦@:(a.b)⟧",)),
    Kind("placeholder", r"""%(?:\d+\$)?[#]@\w+@""", ("Delete ⟦%#@files@⟧ and ⟦%1$#@dirs@⟧",)),
    Kind("placeholder", r"""(?<!\w)__\w+?__(?!\w)|(?<![\w#@])([#]{2}|@@)[A-Za-z_]\w*+\1(?![\w#@])""", (
        "⟦__x__⟧ ⟦##NAME##⟧ ⟦@@name@@⟧; ## Title ##",
    )),
    Kind("placeholder", rf"""
        (?<![\w%])(%%?)[A-Za-z_]\w++\1(?![\w%])|(?<![\w%])%\d{{1,2}}%(?!\w)
        |(?:(?<![\w%])|(?<=%L?\dx))%L?\d{{1,2}}(?=(?:px|ms|[kKMGT]i?B)(?!\w)|x%L?\d|(?![\w%$]|\.\d))
        # printf with an index, a name or a precision
        |(?<!%)%(?:(?:\(\w[^()%]{{0,99}}+\)|<\w++>|\d++\$|\[\d++\])[-+#0'_^\d*]*+(?:\.[\d*]++)?|[-+#0\d*]*+\.[\d*]++)
         {_LENGTH}[@a-zA-Z]
        # before letters, unless it may be a percentage, such as 50%der
        |(?:(?<![\w%])(?<!\d\s)|(?<=%[a-z]{{2,4}}))%(?:[-+#0]*+\d++|\+)?(?:ll?|I64|z)?
         (?:[ds]|(?<=ll|\d)[ufx]|[uf@](?=[A-Z]|[a-z]{{1,2}}(?![a-z])))(?=[^\W\d_])
        # before anything else
        |(?<![\d%])%[-+#0'_^\d*]*+{_LENGTH}[@a-zA-Z](?![^\W\d_]{{2}}|(?<=\d\s%[a-zA-Z])[^\W\d_])""", (
        "⟦%s⟧ ⟦%d⟧ ⟦%lld⟧ ⟦%zu⟧ ⟦%1$s⟧ ⟦%-5.2f⟧ ⟦%@⟧ ⟦%(user_name)s⟧ ⟦%1⟧ ⟦%L1⟧ ⟦%name%⟧ 100% sure, 5 %, 50%der",
        "⟦%5.2f⟧ ⟦%10.3f⟧ ⟦%05.1f⟧ 50 ⟦%d⟧ of it; see ⟦%1⟧. 50 %ig, 100 %de ⟦%H⟧:⟦%M⟧ ⟦%s⟧⟦%(a)d⟧",
        "⟦%d⟧ms ⟦%d⟧px ⟦%d⟧MB ⟦%d⟧th ⟦%1$d⟧px ⟦%(n)d⟧ms ⟦%.1f⟧GB ⟦%ld⟧us ⟦%zu⟧MB ⟦%5d⟧ms ⟦%s⟧foo ⟦%1$tY⟧ ⟦%@⟧s",
        "Please ⟦%s⟧click here⟦%s⟧; ⟦%d⟧x⟦%d⟧px, ⟦%1⟧x⟦%2⟧, ⟦%1⟧ms, ⟦%d⟧:⟦%02d⟧, ⟦%I64d⟧ ⟦%[1]d⟧ ⟦%1%⟧",
        "⟦%%name%%⟧ ⟦%+d⟧ms 100%discount, 10-%ige, %increase, %age, 95th %ile, %used, 10 %discount, %free memory",
    )),
    Kind("tag", r"""<%.{0,200}?%>|<\?.{0,200}?\?>|<!--.{0,200}?-->""", ("⟦<%= x %>⟧ ⟦<?php echo 1 ?>⟧ ⟦<!-- c -->⟧",)),
    # Names, and links of MediaWiki around their text
    Kind("link", r"""
        (?<!\[)\[\[[A-Za-z_][\w.-]*+\]\](?!\])|\[\[[^\[\]\n]{1,200}\|(?=[^\[\]|\n]{1,200}\]\])
        |(?<=\[\[[^\[\]\n]{1,200}\|[^\[\]|\n]{1,200})\]\]""", (
        "The ⟦[[Dog breed|⟧two dogs⟦]]⟧ in ⟦[[File:a.jpg|thumb|⟧a dog⟦]]⟧, ⟦[[Собака|⟧пёс⟦]]⟧ы, [[New York]], a | b]]",
        "⟦[[name]]⟧ [[1]]",
    )),
    Kind("escape", r"""\\[nrt](?![a-z])|\\u[\dA-Fa-f]{4}|\\x[\dA-Fa-f]{2}""", (
        "a line⟦\\n⟧Break, \\theta; ⟦\\u00e9⟧ ⟦\\x41⟧",
    )),
    Kind("citation", rf"""{_KEY}[{_NAME}0-9]*+(?:[-.:/+#~@][{_NAME}0-9]++)*+""", (
        "See ⟦@sec-birds⟧, as ⟦@smith2020⟧ says, ⟦-@doe99⟧, ⟦@fig:plot⟧; ⟦@doi:10.1/a⟧; ⟦@a⟧'s (⟦@Müller_2020⟧)",
        "Add ⟦@scope/package⟧, ⟦@types/node@1.2.3⟧, ask .⟦@user⟧, 5 @ 5 EUR, @5EUR, me@home, 你好@张三你好, Sa.@",
    )),
    # The brackets of a citation with words
    Kind("citation", rf"""\[(?={_CITED}\](?![(\[]))|(?<=\[{_CITED})\](?![(\[])""", (
        "⟦[⟧see ⟦@doe99⟧, p. 3⟦]⟧ and ⟦[⟧⟦-@a⟧; cf. ⟦@b⟧⟦]⟧, [⟦@user⟧](x), [⟦@user⟧][x], [a@b], ⟦[⟧см. ⟦@Иванов⟧⟦]⟧",
    )),
    # Numbers of issues are longer than those of places, as in "the #1".
    Kind("hashtag", r"""
        (?<![\p{L}\p{N}_#&/])[#](?:[\p{L}_][\p{L}\p{M}\p{N}_]*+|\d{3,}+(?![\p{L}\p{N}_]))""", (
        "⟦#hashtag⟧, ⟦#MeToo⟧; l'⟦#Agoua⟧ ⟦#сезон⟧ ⟦#猫の日⟧ fixes ⟦#123⟧ (⟦#4567⟧). The #1, #10 C# F#m a#b x/#y # A #",
    )),
    Kind("placeholder", r"""(?<![\w:]):[a-z0-9_+-]{2,40}+:(?!\w)|(?<![\w:)/]):[a-z_]\w++(?![\w:])""", (
        "⟦:material-check-all:⟧ ⟦:skin-tone-2:⟧ ⟦:non-potable_water:⟧ ⟦:+1:⟧ ⟦:name⟧, 12:00: Note: it",
    )),
    Kind("tag", r"""
        </?(?:\d++|[A-Za-z_][\w.-]*+(?::[\w.-]++)?)(?:\s+[^<>=]*=(?:"[^"]*"|'[^']*'|[^<>"'])*+)?\s*/?>""", (
        "⟦<0>⟧Press⟦</0>⟧ ⟦<br/>⟧ ⟦<a href='x'>⟧here⟦</a>⟧, a < b and c > d; x<y and z>w; if a<b then c>d;",
        "⟦<a href='a>b'>⟧ ⟦<xliff:g id='x'>⟧a⟦</xliff:g>⟧ ⟦<c:out value='${x}'/>⟧",
    )),
    Kind("reference", r"""&(?:[A-Za-z]\w*+|[#]\d++|[#]x[\dA-Fa-f]++);""", ("Fish⟦&nbsp;⟧and chips ⟦&#228;⟧ AT&T",)),
    # Flags are two letters of regions, or a flag with tags behind it.
    Kind("emoji", rf"""
        \p{{RI}}\p{{RI}}|[0-9#*]\uFE0F?\u20E3
        |(?:\p{{Emoji_Presentation}}|\p{{Extended_Pictographic}}(?=[\uFE0F\u200D]|\p{{EMod}}))\uFE0F?\p{{EMod}}?
         [{_TAGS}]*(?:\u200D\p{{Extended_Pictographic}}\uFE0F?\p{{EMod}}?)*+""", (
        "Good ⟦😀⟧⟦👍🏽⟧ ⟦🇩🇪⟧ ⟦❤️⟧ ⟦👩‍👩‍👧⟧ ⟦1️⃣⟧ ⟦:smile:⟧ ⟦✌🏽⟧ ⟦❤‍🔥⟧ ⟦🏴󠁧󠁢󠁥󠁮󠁧󠁿⟧ © 2020 ™",
    )),
)  # fmt: skip
