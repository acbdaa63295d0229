"""Names of sources, accounts and periods: one name is one name, so that a look-alike is not a fresh budget.

A new name has one spelling (Unicode's normal form NFKC), shows every character it holds, and writes each word in one script.
One that looks like a name the ledger has is refused. Names that a ledger holds already stay as they are.

Two names look alike if one skeleton is left of both once case, accents, punctuation and blanks are taken off, and letters that
look alike are brought to one. Between two digits a sign counts, so that 2025-1-11 and 2025-11-1 are two names; digits count,
apart from 0 and 1, which look like letters, so that people2025 and people2026 are. Where such a letter stands beside a sign,
as in co-op, a name has a skeleton with the sign and one without. A skeleton is only compared, never shown.

The rules follow Unicode Technical Standard 39 (Unicode Security Mechanisms): the scripts are those recommended for
identifiers, mixtures within a word are those of its restriction level "highly restrictive", and letters that look alike are
brought to one before names are compared. The standard's table of look-alikes is large, and mostly about letters and signs that
are refused here as a whole. The table below has the common ones among the rest; it does not have every pair that a font may
make alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue

LONGEST = 200
_SCRIPTS = (
    "ARABIC", "ARMENIAN", "BENGALI", "BOPOMOFO", "CJK", "CYRILLIC", "DEVANAGARI", "ETHIOPIC", "GEORGIAN", "GREEK", "GUJARATI",
    "GURMUKHI", "HANGUL", "HEBREW", "HIRAGANA", "KANNADA", "KATAKANA", "KHMER", "LAO", "LATIN", "MALAYALAM", "MYANMAR", "ORIYA",
    "SINHALA", "TAMIL", "TELUGU", "THAANA", "THAI", "TIBETAN",
)  # fmt: skip
_TOGETHER = ({"CJK", "HIRAGANA", "KATAKANA", "LATIN"}, {"CJK", "HANGUL", "LATIN"}, {"CJK", "BOPOMOFO", "LATIN"})
_LATIN = "ơƯưƠ" + "".join(map(chr, [*range(0xC0, 0x180), *range(0x1CD, 0x1DD), *range(0x218, 0x21C), *range(0x1E00, 0x1F00)]))
_UNSEEN = frozenset("\u115f\u1160\u17b4\u17b5\u3164\uffa0")  # letters and marks that show nothing
# What looks alike, each after the letter that stands for all of it. Accents and signs are taken off apart.
_ALIKE = {
    "A": "АΑ", "B": "ВΒ", "C": "СϹ", "E": "ЕΕ", "F": "Ϝ", "G": "Ԍ", "H": "НΗ", "J": "ЈͿ", "K": "КΚ", "L": "Լ", "M": "МΜ",
    "N": "Ν", "O": "0ОΟՕ", "P": "РΡ", "Q": "Ԛ", "S": "ЅՏ", "T": "ТΤ", "U": "Ս", "V": "Ѵ", "W": "Ԝ", "X": "ХΧ",
    "Y": "УΥҮ", "Z": "Ζ",
    "a": "аα", "b": "Ьь", "c": "сϲ", "cl": "dԁđð", "e": "еҽ", "g": "ց", "h": "һհħ", "i": "іιı", "j": "јϳյ", "k": "кκĸ",
    "l": "I1|ІӀӏΙוןاł", "n": "пոηŋ", "o": "оοօჿסهø", "p": "рρþ", "q": "ԛզ", "r": "г", "rn": "mм", "s": "ѕ", "t": "тτŧ",
    "u": "սυ", "v": "ѵν", "vv": "wԝաш", "x": "хχ", "y": "уγүყ", "3": "ЗзӠҘ", "4": "Ч", "6": "б", "ß": "β", "Γ": "Г", "Π": "П",
    "Φ": "Ф", "φ": "ф", "Λ": "Л", "ー": "一", "カ": "力", "ロ": "口", "エ": "工", "ニ": "二", "ハ": "八", "ト": "卜",
    "タ": "夕", "ヘ": "へ", "リ": "り", "ae": "æ", "oe": "œ",
}  # fmt: skip
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]")  # on letters that are read without them
_STANDS_FOR = {ord(each): first for first, others in _ALIKE.items() for each in others}


def new_name(label: str, value: Any) -> str:
    """A name that may be given to a new source, account or period; `what` says which, for the error.

    >>> new_name("source", "patients of 2026")
    'patients of 2026'
    """
    name = check.word(label, value)
    if len(name) > LONGEST:
        raise InvalidValue(f"{label} must have at most {LONGEST} characters; got {len(name)}.")
    if name != name.strip():
        raise InvalidValue(f"{label} must not begin or end with a blank; got {_shown(name)}.")
    if not any(letter.isalnum() for letter in name):
        raise InvalidValue(f"{label} must hold a letter or a digit; got {_shown(name)}.")
    if (normal := unicodedata.normalize("NFKC", name)) != name:
        advice = f"; its normal form is {_shown(normal)}" if normal.isprintable() and normal == normal.strip() else ""
        raise InvalidValue(f"{label} must be in Unicode's normal form NFKC; {_shown(name)} is not{advice}.")
    scripts = _scripts([_script(label, name, place) for place in range(len(name))], name)
    if scripts is not None:
        listed = " and ".join(script.capitalize() for script in scripts)
        raise InvalidValue(
            f"{label} must write each word in one script, since letters of others look alike; {_shown(name)} has {listed}."
        )
    return name


def _scripts(scripts: list[str | None], name: str) -> list[str] | None:
    """The scripts of the first word that mixes some which do not go together, None if no word does."""
    word: set[str] = set()
    for letter, script in zip(f"{name} ", [*scripts, None], strict=True):
        if script is not None:
            word.add(script)
        elif not letter.isdigit():  # a sign or a blank ends the word
            if len(word) > 1 and not any(word <= allowed for allowed in _TOGETHER):
                return sorted(word)
            word = set()
    return None


def unlike(label: str, name: str, existing: Iterable[str]) -> None:
    """Refuse a new name that looks like one that is taken, or that differs from it in case, accents or punctuation alone."""
    for other in existing:
        if other != name and alike(name, other):
            raise InvalidValue(
                f"{label} {_shown(name)} looks like {_shown(other)}, which the ledger has; a look-alike would be a second "
                "budget. Use that one, or a name that nobody takes for it."
            )


def alike(name: str, other: str) -> bool:
    """Whether people may take one name for the other: the same but for case, accents, punctuation, or letters that look alike.

    >>> alike("people", "peop1e"), alike("patients 2026", "patients_2026"), alike("people2025", "people2026")
    (True, True, False)
    """
    return not _skeletons(name).isdisjoint(_skeletons(other))


@lru_cache(4096)
def _skeletons(name: str) -> frozenset[str]:
    """What is left of a name without case, accents, signs and look-alikes: by its small letters, and as it is written.

    Both are needed: the capital I is an i by its case and looks like an l. Letters are folded again after the table, so that
    0 and O and o are one.
    """
    visible = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not _hidden(letter))
    starts = [_without_signs(start, doubt) for start in (_folded(visible), visible) for doubt in (" ", "")]
    return frozenset(_canonical_letters(_canonical_letters(start)) for start in starts)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())


def _canonical_letters(name: str) -> str:
    """One letter for all that look like it, a small one, without its accents."""
    return "".join(letter for letter in _folded(name.translate(_STANDS_FOR)) if not _ACCENTS.match(letter))


def _without_signs(name: str, doubt: str) -> str:
    """Without punctuation and blanks: one blank for those between two digits, `doubt` where a letter looks like one."""
    letters: list[str] = []
    last, parted = "", False
    for letter in name:
        if unicodedata.category(letter)[0] in "PZ" or letter in "`^~":
            parted = True
            continue
        if parted and last and _digit(last) and _digit(letter):
            letters.append(" " if last.isdigit() and letter.isdigit() else doubt)
        letters.append(letter)
        parted = False
        last = last if _ACCENTS.match(letter) else letter
    return "".join(letters)


@lru_cache(4096)
def _digit(letter: str) -> bool:
    """A digit, or a letter that looks like one."""
    return letter.isdigit() or _canonical_letters(_canonical_letters(letter)) in ("l", "o")


def _script(label: str, name: str, place: int) -> str | None:
    """The script of a character, None for what goes with all of them; InvalidValue for one that no new name may have."""
    letter = name[place]
    if " " < letter <= "~" or (letter == " " and name[place - 1] != " "):
        return "LATIN" if letter.isalpha() else None
    script = unicodedata.name(letter, "").replace("-", " ").partition(" ")[0]
    kind = unicodedata.category(letter)
    if letter == " ":
        reason = "is a second blank in a row"
    elif _hidden(letter) or kind[0] in "CZ":
        reason = "is not seen"
    elif script == "COMBINING":
        reason = "is a mark that goes with any letter"
    elif kind[0] not in "LM":
        reason = "is a sign that looks like others; plain ASCII signs and digits are fine"
    elif script not in _SCRIPTS or (script == "LATIN" and letter not in _LATIN):
        reason = "is a letter that is rare, and looks like others"
    else:
        return script
    raise InvalidValue(f"{label} must not hold the character U+{ord(letter):04X}, which {reason}; got {_shown(name)}.")


def _hidden(letter: str) -> bool:
    """Whether a character shows nothing: controls, marks of direction, joiners, selectors of variants, fillers."""
    if letter in _UNSEEN or unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return True
    return "\ufe00" <= letter <= "\ufe0f" or "\u180b" <= letter <= "\u180f" or letter >= "\U000e0100" or letter == "\u034f"


def _shown(name: str) -> str:
    """A name as an error shows it: what is not plain ASCII by its number too, since that is what it is about."""
    return check.shown(name) if name.isascii() else f"{check.shown(name)} ({check.shown(ascii(name))})"
