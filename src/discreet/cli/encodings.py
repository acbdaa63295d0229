"""`discreet attack encodings`: the pictures behind InstaHide or mixup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from discreet.cli.output import command_line, json_option, reported, table, talk, write_json
from discreet.figures import place_name


@click.command("encodings")
@click.argument("encodings", type=click.Path())
@click.option(
    "--public", required=True, metavar="FILE.npz", help="Public pictures of the same shape, as `pictures`; 2,000 or more."
)
@click.option("--private", type=int, required=True, metavar="N", help="How many private pictures the encodings were made of.")
@click.option("--others", type=int, default=2, show_default=True, metavar="N", help="Public pictures in each encoding.")
@click.option(
    "--largest", type=float, default=0.65, show_default=True, metavar="SHARE", help="The largest share of one picture."
)
@click.option("--mirror", is_flag=True, help="Private pictures were mirrored by coins before they were mixed.")
@click.option("--originals", metavar="FILE.npz", help="The private pictures, as `pictures`, to score what is found.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the random starts.")
@click.option("-o", "--output", "out", required=True, metavar="FOLDER", help="Where the recovered pictures go.")
@json_option
def encodings_command(
    encodings: str, public: str, private: int, others: int, largest: float, mirror: bool, originals: str | None, seed: int,
    out: str, as_json: bool,
) -> None:  # fmt: skip
    """What pictures can be read out of ENCODINGS, made by InstaHide or mixup?

    ENCODINGS is an .npz file: `pictures` [count, height, width, channels] within -1 and 1 and, where labels were sent too,
    `labels` [count, classes] with the share of each class. The pictures that are found go to pictures.npz and pictures.png,
    with a release.json that `discreet report` makes a page of. With --originals they are set beside the truth, and beside the
    public picture most like each.
    """
    import numpy as np

    from discreet.attack.encodings import EncodingsAttack
    from discreet.attack.pictures import png, sheet
    from discreet.models.rows import read_arrays

    sent = read_arrays(encodings, ("pictures",), optional=("labels",))
    known = read_arrays(public, ("pictures",))["pictures"]
    truth = None if originals is None else read_arrays(originals, ("pictures",))["pictures"]
    attack = EncodingsAttack(private, others=others, largest=largest, mirror=mirror, seed=seed)
    with reported(3, "reading pictures") as progress:
        found = attack.decode(
            sent["pictures"], known, labels=sent.get("labels"), progress=lambda what, done, total: progress(done, total)
        )
    beside = None if truth is None else found.compared(truth, known)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "pictures.npz", pictures=found.pictures)
    shown = [found.pictures] if beside is None or truth is None else [truth, beside.pictures]
    if shown[0].shape[-1] in (1, 3):
        (folder / "pictures.png").write_bytes(png(sheet([(row[:20] + 1) / 2 for row in shown])))
    facts = {"pictures": len(found.pictures), "signs_flipped": found.signs, "cpu_seconds": round(found.seconds, 2)}
    if beside is not None:
        facts |= {
            "found": beside.found, "ssim_mean": float(beside.ssim.mean()), "baseline_ssim_mean": float(beside.baseline.mean())
        }  # fmt: skip
    _save(place_name(encodings), folder, len(sent["pictures"]), facts, [(row + 1) / 2 for row in shown])
    if as_json:
        write_json(facts)
    elif beside is None:
        talk(f"{len(found.pictures)} pictures in {found.seconds:.1f} CPU seconds. Give --originals to score them.")
    else:
        cells = f"{beside.found} of {private}", f"{beside.ssim.mean():.3f}", f"{beside.baseline.mean():.3f}"
        table([cells], heads=["pictures found", "mean SSIM", "nearest public picture"])
    talk("The encoding claims nothing: no ε bounds what it gives away, and these pictures are what it gave away.")
    talk(f"{out} holds what was read. It is private: treat it like the pictures themselves.")


def _save(name: str, folder: Path, encodings: int, facts: dict[str, Any], shown: list[Any]) -> None:
    """A release with the pictures, for a report to the owner."""
    from discreet.attack.pictures import thumbnail
    from discreet.core import Release
    from discreet.core.facts import made

    picture = thumbnail(shown)
    told: dict[str, Any] = {"encodings": encodings, "private": facts["pictures"], "signs": facts["signs_flipped"]}
    told |= {} if picture is None else {"picture": picture}
    if "found" in facts:
        told |= {"found": facts["found"], "ssim": facts["ssim_mean"], "baseline": facts["baseline_ssim_mean"]}
    kept = {"title": f"What {name} hides", "made": made(command_line()), "encodings": told}
    Release(value={"encodings": name}, source=name, claims=(), facts=kept).save(folder / "release.json")
