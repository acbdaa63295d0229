"""A policy and what stands beside a release: ledger and signatures, asked for or merely at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from discreet import Ledger, record, report
from discreet.accounting import Gaussian, NonPrivate
from discreet.core import Claim, Game, Release
from discreet.errors import InvalidDocument
from discreet.report.gate import Policy, Proofs, proofs_of, worst
from discreet.report.keys import make_key
from discreet.report.signature import check_head, sign_head, sign_release

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))
PLAIN = '[[rule]]\non = "release"\nrequire = ["claim"]\n'
EDITED = Claim(game=CLAIM.game, event=Gaussian(500.0))
NOTHING = Claim(game=CLAIM.game, event=NonPrivate())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    return ledger


@pytest.fixture
def release(ledger: Ledger) -> Release[Any]:
    with ledger.reserve("people", CLAIM) as entry:
        return Release(value=7, source="people", claims=(CLAIM,), entry=entry)


@pytest.fixture
def key(tmp_path: Path) -> tuple[Path, str]:
    return tmp_path / "our.key", make_key(tmp_path / "our.key")


def wrong(ledger: Ledger, release: Release[Any]) -> dict[str, Release[Any]]:
    """The release, made into each that its entry did not pay for."""
    gone = ledger.reserve("people", CLAIM)
    gone.cancel("withdrawn")
    return {
        "edited": replace(release, claims=(EDITED,)), "borrowed": replace(release, source="visits"),
        "cancelled": replace(release, entry=gone.id), "unknown": replace(release, entry="2-0000000000000000"),
    }  # fmt: skip


@pytest.mark.parametrize("how", ["edited", "borrowed", "cancelled", "unknown"])
def test_what_a_ledger_contradicts_fails_first_and_is_the_first_line(ledger: Ledger, release: Release[Any], how: str) -> None:
    policy, bad = Policy.from_toml(PLAIN), wrong(ledger, release)[how]
    good = policy.judge(release, proofs_of(release, None, ledger=ledger))
    assert (good[0].rule, good[0].where, good[0].outcome, worst(good)) == ("as-it-says", "entry", "holds", "holds")
    found = policy.judge(bad, proofs_of(bad, None, ledger=ledger))
    assert (found[0].rule, found[0].outcome, worst(found)) == ("as-it-says", "failed", "failed")
    assert worst(policy.judge(bad)) == "holds"  # without the ledger nobody can know
    told = report.document(bad, ledger=ledger)["verdict"]
    assert told["status"] == "contradicted"
    assert told["sentence"].startswith("Do not rely on this release: ")
    assert found[0].message.rstrip(".")[:40] in told["sentence"]
    lines = [
        line for line in report.markdown(bad, ledger=ledger).splitlines() if line and not line.startswith(("#", "20", "|"))
    ]
    assert any(line.startswith("**contradicted.** Do not rely on this release: ") for line in lines[:3]), lines[:3]
    assert report.document(release, ledger=ledger)["verdict"]["status"] != "contradicted"


def test_releases_that_share_an_entry_are_told_of(ledger: Ledger, release: Release[Any]) -> None:
    notes = report.document([release, release.map(lambda value: 8)], ledger=ledger)["ledger_notes"]
    assert any("is named by 2 of these releases" in note for note in notes)


def test_a_policy_can_require_a_ledger(ledger: Ledger, release: Release[Any]) -> None:
    policy = Policy.from_toml('[[rule]]\non = "release"\nrequire = ["ledger"]\n')
    outcomes = {
        "paid": (release, proofs_of(release, None, ledger=ledger)), "no ledger": (release, Proofs()),
        "no entry": ((bare := replace(release, entry=None)), proofs_of(bare, None, ledger=ledger)),
    }  # fmt: skip
    found = {name: [each for each in policy.judge(*given) if each.where == "ledger"] for name, given in outcomes.items()}
    assert [found[name][0].outcome for name in outcomes] == ["holds", "failed", "failed"]
    assert "no ledger was given" in found["no ledger"][0].message
    assert "no ledger entry paid for it" in found["no entry"][0].message


@pytest.mark.parametrize("claims", [(), (NOTHING,), (CLAIM, NOTHING)], ids=["none", "nothing", "beside"])
def test_an_entry_pays_for_no_release_that_promises_nothing(
    ledger: Ledger, release: Release[Any], claims: tuple[Claim, ...]
) -> None:
    policy = Policy.from_toml('[[rule]]\non = "release"\nrequire = ["ledger"]\n')
    raw = replace(release, value=[1, 2, 3], claims=claims)
    findings = policy.judge(raw, proofs_of(raw, None, ledger=ledger))
    assert (findings[0].rule, findings[0].outcome) == ("as-it-says", "failed")
    assert [each.outcome for each in findings if each.where == "ledger"] == ["failed"]
    assert "its claims are not those" in findings[0].message
    assert report.document(raw, ledger=ledger)["verdict"]["status"] == "contradicted"


def test_a_policy_can_require_signatures(ledger: Ledger, release: Release[Any], key: tuple[Path, str], tmp_path: Path) -> None:
    file = release.save(tmp_path / "release.json")
    text = f'keys = ["{key[1]}"]\n[[rule]]\non = "release"\nrequire = ["signature", "ledger.head"]\n'
    policy = Policy.from_toml(text)
    unsigned = policy.judge(release, proofs_of(release, file, ledger=ledger, keys=policy.keys))
    assert [(each.where, each.outcome) for each in unsigned if each.rule != "claims-hold"] == [
        ("entry", "holds"), ("signature", "failed"), ("ledger.head", "failed")
    ]  # fmt: skip
    sign_release(file, key[0])
    head = check_head(ledger, sign_head(ledger, key[0], tmp_path / "head.sig"), policy.keys)
    signed = policy.judge(release, proofs_of(release, file, ledger=ledger, head=head, keys=policy.keys))
    assert worst(signed) == "holds"
    assert len(signed) == 5
    from_nowhere = policy.judge(release, proofs_of(release, None, ledger=ledger, head=head, keys=policy.keys))
    assert worst(from_nowhere) == "failed"


def test_a_signed_head_covers_no_later_entry(
    ledger: Ledger, release: Release[Any], key: tuple[Path, str], tmp_path: Path
) -> None:
    """Whether the head is required or merely at hand, and whichever of its entries came too late."""
    policy = Policy.from_toml(f'keys = ["{key[1]}"]\n{PLAIN}')
    head = check_head(ledger, sign_head(ledger, key[0], tmp_path / "head.sig"), policy.keys)
    with ledger.reserve("people", CLAIM) as entry:
        later = replace(release, entry=entry)
    both = replace(release, claims=(CLAIM, CLAIM), also=(entry,))
    found = {
        name: next(
            each for each in policy.judge(it, proofs_of(it, None, ledger=ledger, head=head)) if each.where == "ledger.head"
        )
        for name, it in {"earlier": release, "later": later, "both": both}.items()
    }
    assert {name: each.outcome for name, each in found.items()} == {"earlier": "holds", "later": "failed", "both": "failed"}
    assert found["earlier"].message == f"the ledger up to entry {head.entry} is as {key[1]} signed it."
    assert found["later"].message.startswith(f"entry {entry} was paid after the signed head: sign again.")
    again = check_head(ledger, sign_head(ledger, key[0], tmp_path / "head.sig"), policy.keys)
    assert worst(policy.judge(later, proofs_of(later, None, ledger=ledger, head=again))) == "holds"


def test_a_signature_that_does_not_fit_fails_whether_required_or_not(
    ledger: Ledger, release: Release[Any], key: tuple[Path, str], tmp_path: Path
) -> None:
    file = release.save(tmp_path / "release.json")
    sign_release(file, key[0])
    edited = replace(release, value=8)
    edited.save(file)
    found = Policy.from_toml(PLAIN).judge(edited, proofs_of(edited, file))
    assert (found[0].where, found[0].outcome) == ("signature", "failed")
    assert "was changed after it was signed" in found[0].message
    verdict = report.document(file)["verdict"]
    assert verdict["status"] == "contradicted"
    assert "was changed after it was signed" in verdict["sentence"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[rule]]\non = "release"\nrequire = ["signature"]', "line 3: signature is required, and keys does not say whose"),
        ('[[rule]]\non = "release"\nrequire = ["claim", "ledger.head"]', "line 3: ledger.head is required, and keys"),
        (f'keys = "x"\n{PLAIN}', "line 1: keys must list public keys"),
        (f'keys = [\n"ed25519:AAAA"\n]\n{PLAIN}', "line 2: a key must be ed25519: and 32 bytes"),
        ('[[rule]]\non = "release"\nrequire = ["ledger.haed"]', r"ledger has no 'haed' \(did you mean head\?\)"),
        ('[[rule]]\non = "release"\nrequire = ["signature.key"]', "signature has no 'key'"),
        ('[[rule]]\non = "release"\nrequire = ["ledger == paid"]', "cannot be compared with a value"),
    ],
)
def test_a_policy_that_asks_for_proofs_is_read_strictly(text: str, told: str) -> None:
    with pytest.raises(InvalidDocument, match=told):
        Policy.from_toml(text)
