"""One name is one name: spellings, unseen characters and look-alikes are no fresh budget; old ledgers still open."""

from __future__ import annotations

import sqlite3
import sys
import threading
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.errors import InvalidValue
from discreet.ledger.names import _ALIKE, _STANDS_FOR, alike, new_name

SMALL = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))
FINE = [
    "people", "patients of 2026", "visits/2026-11", "données", "Straße", "пациенты", "ασθενείς", "患者データ", "환자", "顧客DB",
    "រោគី",
    "रोगी", "مرضى", "חולים", "a.b_c-d+e", "Đường", "țară", "больница & Co", "данные COVID-19",
]  # fmt: skip
WRONG = {
    "people ": "begin or end with a blank", " people": "begin or end with a blank", "people\n": "begin or end with a blank",
    "peo\nple": "U+000A, which is not seen", "peo\0ple": "U+0000", "peo\u200bple": "U+200B, which is not seen",
    "peo\u2060ple": "U+2060", "peo\u00adple": "U+00AD", "\u202epeople": "U+202E", "peo\ufe0fple": "U+FE0F",
    "peo\u034fple": "U+034F",
    "peo\u115fple": "U+115F", "peo\U000e0041ple": "U+E0041", "ｐｅｏｐｌｅ": "its normal form is 'people'",
    "peo\u00a0ple": "its normal form is 'peo ple'", "cafe\u0301": "its normal form is 'café'",
    "ﬁles": "its normal form is 'files'",
    "of  two": "second blank in a row", "peoрle": "has Cyrillic and Latin", "αlpha": "has Greek and Latin",
    "ok peoрle": "has Cyrillic and Latin", "p1р": "has Cyrillic and Latin",
    "peo\u0336ple": "U+0336",
    "peo‐ple": "U+2010", "pe٠ple": "U+0660", "people→": "U+2192", "peoꓑle": "U+A4D1", "peᴏple": "U+1D0F", "𐌀": "U+10300",
    "x" * 201: "at most 200 characters",
}  # fmt: skip
TWINS = [
    ("people", "People"), ("people", "peop1e"), ("people", "peopIe"), ("OSCAR", "0SCAR"), ("cocoa", "сосоа"),
    ("modem", "modern"),
    ("HATE", "НАТЕ"), ("copy", "сору"), ("AB", "ΑΒ"), ("ţară", "țară"), ("ロ", "口"), ("Straße", "STRASSE"), ("ă", "ǎ"),
    ("our Coca", "our Соса"),
    ("people", "PeopIe"), ("people", "PEOP1E"), ("people", "PEOPIE"), ("cohort", "c0hort"), ("cohort", "C0HORT"),
    ("view", "vievv"), ("VIEW", "vievv"), ("o'brien", "o`brien"), ("modern", "MODEM"), ("a\"b", "a''b"),
    ("patients 2026", "patients_2026"), ("patients 2026", "patients2026"), ("people", "people."), ("café", "cafe"), ("é", "E"),
    ("clinic", "dinic"), ("c1inic", "dinic"), ("clínic", "Dinic"), ("élan/2", "elan-2"), ("søster", "soster"), ("a.b", "ab"),
    ("site 1.1", "site l.l"), ("our-people", "ourpeople"), ("o'brien", "obrien"), ("(people)", "people"), ("ещё", "еще"),
    ("co-op", "coop"), ("total loans", "totalloans"), ("tool_logs", "toollogs"), ("I/O", "IO"), ("hall-Ost", "hallost"),
    ("1-1", "l-l"),
    ("2025-1-11", "2025-l-11"), ("2025-1-11", "2025-1-ll"), ("со-оп", "сооп"),
]  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


def begin(ledger: Ledger, source: str, **terms: object) -> None:
    ledger.open(source, unit=record(), epsilon=1.0, delta=1e-6, **terms)  # type: ignore[arg-type]


def test_names_of_many_languages_are_fine(ledger: Ledger) -> None:
    for name in FINE:
        begin(ledger, name)
        begin(ledger, name)  # the same again changes nothing
        ledger.share(name, name, 0.1, by="owner")
    assert len(ledger.sources()) == len(FINE)
    ledger.verify()


@pytest.mark.parametrize("name", WRONG)
def test_spellings_and_unseen_characters_are_refused(ledger: Ledger, name: str) -> None:
    begin(ledger, "people")
    begin(ledger, "visits", by_period=True)
    told = WRONG[name].replace("+", r"\+")
    with pytest.raises(InvalidValue, match=f"source must.*{told}"):
        begin(ledger, name)
    with pytest.raises(InvalidValue, match=f"account must.*{told}"):
        ledger.share("people", name, 0.1, by="owner")
    with pytest.raises(InvalidValue, match=f"period must.*{told}"):
        ledger.renew("visits", period=name, by="owner", reason="new")
    assert ledger.sources() == ["people", "visits"]
    assert ledger.accounts("people") == ["default"]


@pytest.mark.parametrize(("one", "two"), [*TWINS, *((two, one) for one, two in TWINS)])
def test_a_look_alike_is_no_fresh_budget(ledger: Ledger, one: str, two: str) -> None:
    begin(ledger, one)
    begin(ledger, "visits", by_period=True)
    ledger.share(one, one, 0.1, by="owner")
    ledger.renew("visits", period=one, by="owner", reason="new")
    for again in (
        lambda: begin(ledger, two),
        lambda: ledger.share(one, two, 0.1, by="owner"),
        lambda: ledger.renew("visits", period=two, by="owner", reason="new"),
    ):
        with pytest.raises(InvalidValue, match=r"looks like .*which the ledger has"):
            again()
    assert len(ledger.sources()) == 3
    ledger.verify()


def test_words_that_differ_to_the_eye_are_two_names() -> None:
    for one, two in (("tail", "tall"), ("view", "vies"), ("people", "peoples"), ("cohort 1", "cohort 2"), ("A+", "A-")):
        assert not alike(one, two)


def test_families_of_names_stay_possible(ledger: Ledger) -> None:
    """Names that differ in a digit, a letter or the place of a separator between digits; periods of one source."""
    family = [
        "people2024", "people2025", "people2026", "a1", "a2", "a12", "b1", "site-1", "site-2", "site-12", "visits/2025-1-11",
        "visits/2025-11-1", "v1.1", "v11", "v1.2", "ward A", "ward B", "people (old)", "कल", "काल", "がく", "かく",
    ]  # fmt: skip
    for name in family:
        begin(ledger, name)
    begin(ledger, "monthly", by_period=True)
    for month in range(1, 13):
        ledger.renew("monthly", period=f"2026-{month}", by="owner", reason="new")
        ledger.renew("monthly", period=f"2025-{month:02}", by="owner", reason="new")
    assert len(ledger.sources()) == len(family) + 25


def test_a_name_has_a_letter_or_a_digit(ledger: Ledger) -> None:
    for name in ("...", "-", "+"):
        with pytest.raises(InvalidValue, match="a letter or a digit"):
            begin(ledger, name)


@given(st.text("abcdefghijklmnopqrstuvwxyzILO", min_size=2, max_size=8), st.sampled_from("-_.' /"), st.integers(1, 7))
def test_a_sign_between_two_letters_makes_no_other_name(word: str, sign: str, place: int) -> None:
    place = min(place, len(word) - 1)
    assert alike(word, word[:place] + sign + word[place:])


@pytest.mark.parametrize("place", ["file", "server"])
def test_of_look_alikes_opened_at_once_one_is_there(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The comparison is in the transaction that opens: two who open look-alikes at the same moment do not both succeed."""
    where = tmp_path / "ledger.db" if place == "file" else request.getfixturevalue("postgres_url")
    names = ["patients 2026", "patients_2026", "patients-2026", "pätients 2026", "patients.2026", "PATIENTS 2026"]
    ledgers = [Ledger(where) for _ in names]
    ready, done = threading.Barrier(len(names)), []

    def opened(ledger: Ledger, name: str) -> None:
        ready.wait()
        with suppress(InvalidValue):
            begin(ledger, name)
            done.append(name)

    threads = [threading.Thread(target=opened, args=both) for both in zip(ledgers, names, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledgers[0].sources() == done
    assert len(done) == 1
    for ledger in ledgers:
        ledger.close()


def test_a_ledger_that_has_odd_names_still_opens(tmp_path: Path) -> None:
    """Names from before this rule stay in use; what looks like them is refused all the same."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        begin(ledger, "people")
        ledger.reserve("people", SMALL)
    link = sqlite3.connect(path, isolation_level=None)
    for name in ("entry_is_never_changed", "entry_follows_the_last", "entry_becomes_the_last", "entry_is_never_removed"):
        link.execute(f"DROP TRIGGER {name}")
    odd = "peo\u200bple "
    link.execute("UPDATE source SET name = ?", (odd,))
    link.execute("UPDATE account SET source = ?", (odd,))
    link.execute("UPDATE entry SET source = ?", (odd,))
    link.close()
    with Ledger(path) as ledger:
        begin(ledger, odd)
        assert ledger.left(odd) > 0
        assert ledger.balance(odd).spent.divergence > 0
        with pytest.raises(InvalidValue, match=r"looks like 'peo\\u200bple '"):
            begin(ledger, "people")


def test_each_letter_stands_for_itself_or_for_one_that_does() -> None:
    """So the letters that look alike are classes, and names that look alike a relation without gaps."""
    for first in _ALIKE:
        assert first.translate(_STANDS_FOR) == first
    everything = [each for others in _ALIKE.values() for each in others]
    assert len(everything) == len(set(everything)) == len(_STANDS_FOR)


@given(st.text(st.characters(min_codepoint=1, max_codepoint=sys.maxunicode, exclude_categories=["Cs"]), min_size=1, max_size=6))
def test_what_is_accepted_shows_all_it_holds_in_one_spelling(text: str) -> None:
    try:
        name = new_name("source", text)
    except InvalidValue:
        return
    assert name == text == unicodedata.normalize("NFKC", text) == text.strip()
    assert all(letter.isprintable() for letter in name)
    assert alike(name, name)


@given(
    st.sampled_from(FINE),
    st.sampled_from(["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\ufe0e"]),
    st.integers(0, 20),
)
def test_what_shows_nothing_makes_no_other_name(name: str, unseen: str, place: int) -> None:
    longer = name[:place] + unseen + name[place:]
    assert alike(name, longer)
    with pytest.raises(InvalidValue):
        new_name("source", longer)
