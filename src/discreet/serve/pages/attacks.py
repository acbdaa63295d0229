"""Attacks: start one on what the owner configured, watch it, cancel it; its evidence becomes a release."""

from __future__ import annotations

from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.serve.doors import READERS, Door, Go, Page, Reply, Visit
from discreet.serve.jobs import Job
from discreet.serve.settings import MOST_SHADOWS

NAMES = (  # of `discreet attack model`; written out, since asking it loads what attacks need
    "bayes_lira", "lira", "lira_fixed", "lira_offline", "rmia", "calibrated", "shokri", "loss", "confidence", "entropy",
    "label", "noise", "boundary", "quantile", "gradient", "whitebox",
)  # fmt: skip
USUAL = ("bayes_lira", "lira", "loss")
ALONE = ("loss", "confidence", "entropy", "label")  # those that need no recipe


def attacks(visit: Visit) -> Reply:
    """What can be attacked, what runs, what ended."""
    targets = [_target(visit, name) for name in visit.house.settings.targets]
    chosen = visit.query.get("target", "")
    data = {"targets": targets, "jobs": [_told(visit, job) for job in visit.house.jobs.all()]}
    return Page("attacks.html", data, {"names": NAMES, "chosen": chosen, "most": MOST_SHADOWS}, part="parts/jobs.html")


def _target(visit: Visit, name: str) -> dict[str, Any]:
    it = visit.house.settings.targets[name]
    usual = tuple(it.given.get("attacks", ())) or (USUAL if "recipe" in it.given else ALONE[:3])
    here = it.release in visit.house.shelf.names()
    return {"name": name, "kind": it.kind, "release": it.release, "attacks": list(usual), "here": here,
            "trains": "recipe" in it.given, "shadows": it.given.get("shadows", 16)}  # fmt: skip


def _told(visit: Visit, job: Job) -> dict[str, Any]:
    fault = job.fault if visit.person.role == "owner" else "an owner sees why" if job.fault else ""
    return {**job.to_json(), "over": job.over, "fault": fault}


def start(visit: Visit) -> Reply:
    """Queue an attack: names and numbers are chosen here, files never."""
    name = visit.text("target", longest=80)
    target = visit.house.settings.targets.get(name)
    if target is None:
        raise InvalidValue(f"There is no target {check.shown(name)}; the owner of the server configures what may be attacked.")
    visit.house.shelf.path(target.release)  # says so if there is no such release
    asked = [each.strip() for each in visit.text("attacks", ",".join(_target(visit, name)["attacks"]), longest=400).split(",")]
    wrong = [each for each in asked if each not in NAMES]
    if wrong and target.kind == "model":
        raise InvalidValue(f"There is no attack {check.shown(wrong[0])}; there are {', '.join(NAMES)}.")
    shadows, seed = visit.whole("shadows") or 16, visit.whole("seed") or 0
    if not 2 <= shadows <= MOST_SHADOWS:
        raise InvalidValue(f"shadows must be between 2 and {MOST_SHADOWS}; got {shadows}.")
    if not 0 <= seed < 2**31:
        raise InvalidValue(f"seed must be between 0 and 2147483647; got {seed}.")
    job = visit.house.jobs.add(target, visit.person.name, {"attacks": ",".join(asked), "shadows": shadows, "seed": seed})
    visit.house.people.note(visit.person.name, "attacked", target.release, attack=job.number, how=job.told)
    return Go(f"/attacks/{job.number}", job.to_json())


def job(visit: Visit) -> Reply:
    """One attack; while it runs, the page asks again every second."""
    found = visit.house.jobs.find(visit.path["number"])
    return Page("attack.html", {"job": _told(visit, found)}, part="parts/job.html")


def cancel(visit: Visit) -> Reply:
    found = visit.house.jobs.cancel(visit.path["number"])
    visit.house.people.note(visit.person.name, "cancelled", f"attack {found.number}")
    return Go(f"/attacks/{found.number}", found.to_json())


DOORS = (
    Door("/attacks", attacks, READERS),
    Door("/attacks", start, READERS, "POST"),
    Door("/attacks/{number}", job, READERS),
    Door("/attacks/{number}/cancel", cancel, READERS, "POST"),
)
