"""Attacks: start one on what the owner configured, watch it, cancel it; its evidence becomes a release."""

from __future__ import annotations

from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.serve.jobs import Job
from discreet.serve.routes import READERS, Go, Page, Reply, Request, Route
from discreet.serve.settings import MOST_SHADOWS

NAMES = (  # of `discreet attack model`; written out, since asking it loads what attacks need
    "bayes_lira", "lira", "lira_fixed", "lira_offline", "rmia", "calibrated", "shokri", "loss", "confidence", "entropy",
    "label", "noise", "boundary", "quantile", "gradient", "whitebox",
)  # fmt: skip
USUAL = ("bayes_lira", "lira", "loss")
ALONE = ("loss", "confidence", "entropy", "label")  # those that need no recipe


def attacks(request: Request) -> Reply:
    """What can be attacked, what runs, what ended."""
    targets = [_target(request, name) for name in request.state.settings.targets]
    chosen = request.query.get("target", "")
    data = {"targets": targets, "jobs": [_told(request, job) for job in request.state.jobs.all()]}
    return Page("attacks.html", data, {"names": NAMES, "chosen": chosen, "most": MOST_SHADOWS}, part="parts/jobs.html")


def _target(request: Request, name: str) -> dict[str, Any]:
    target = request.state.settings.targets[name]
    usual = tuple(target.options.get("attacks", ())) or (USUAL if "recipe" in target.options else ALONE[:3])
    here = target.release in request.state.store.names()
    return {"name": name, "kind": target.kind, "release": target.release, "attacks": list(usual), "here": here,
            "trains": "recipe" in target.options, "shadows": target.options.get("shadows", 16)}  # fmt: skip


def _told(request: Request, job: Job) -> dict[str, Any]:
    fault = job.fault if request.user.role == "owner" else "an owner sees why" if job.fault else ""
    return {**job.to_json(), "over": job.over, "fault": fault}


def start(request: Request) -> Reply:
    """Queue an attack: names and numbers are chosen here, files never."""
    name = request.text("target", longest=80)
    target = request.state.settings.targets.get(name)
    if target is None:
        raise InvalidValue(f"There is no target {check.shown(name)}; the owner of the server configures what may be attacked.")
    request.state.store.path(target.release)  # says so if there is no such release
    asked = [
        each.strip() for each in request.text("attacks", ",".join(_target(request, name)["attacks"]), longest=400).split(",")
    ]
    wrong = [each for each in asked if each not in NAMES]
    if wrong and target.kind == "model":
        raise InvalidValue(f"There is no attack {check.shown(wrong[0])}; there are {', '.join(NAMES)}.")
    shadows, seed = request.whole("shadows") or 16, request.whole("seed") or 0
    if not 2 <= shadows <= MOST_SHADOWS:
        raise InvalidValue(f"shadows must be between 2 and {MOST_SHADOWS}; got {shadows}.")
    if not 0 <= seed < 2**31:
        raise InvalidValue(f"seed must be between 0 and 2147483647; got {seed}.")
    job = request.state.jobs.add(target, request.user.name, {"attacks": ",".join(asked), "shadows": shadows, "seed": seed})
    request.state.users.note(request.user.name, "attacked", target.release, attack=job.number, how=job.description)
    return Go(f"/attacks/{job.number}", job.to_json())


def job(request: Request) -> Reply:
    """One attack; while it runs, the page asks again every second."""
    job_found = request.state.jobs.find(request.path["number"])
    return Page("attack.html", {"job": _told(request, job_found)}, part="parts/job.html")


def cancel(request: Request) -> Reply:
    job = request.state.jobs.cancel(request.path["number"])
    request.state.users.note(request.user.name, "cancelled", f"attack {job.number}")
    return Go(f"/attacks/{job.number}", job.to_json())


ROUTES = (
    Route("/attacks", attacks, READERS),
    Route("/attacks", start, READERS, "POST"),
    Route("/attacks/{number}", job, READERS),
    Route("/attacks/{number}/cancel", cancel, READERS, "POST"),
)
