"""Every figure that README.md and docs/measured.md quote stands in a committed result."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def result(name: str) -> dict:
    return json.loads((ROOT / "bench/results" / f"{name}.json").read_text())


def against_dp_accounting(summary: dict) -> str:
    return f"{summary['median ratio to dp-accounting']:.0f}× (at least {summary['least ratio to dp-accounting']:.1f}×)"


def accounting() -> list[str]:
    found = result("accounting")
    ratios = [row["ratio"] for row in found["calibration"]]
    return [
        f"{found['summary']['median ms']:.0f} ms",
        against_dp_accounting(found["summary"]),
        against_dp_accounting(result("accounting-near-1e-4")["summary"]),
        f"{min(ratios):.0f}–{max(ratios):.0f}×",
    ]


def noise() -> list[str]:
    rows = result("noise")["rows"]
    ratios = [row["times_numpy_laplace"] for row in rows]
    peers = [row["opendp_times_ours"] for row in rows if "opendp_times_ours" in row]
    return [f"{min(ratios):.2f}–{max(ratios):.1f}×", f"at least {min(peers):.0f}×"]


def audit() -> list[str]:
    found = result("calibration")
    worst = max(row["rate"] for row in found["calibration"] if row["bound"] == "betting")
    tight = next(row["default"] for row in found["tightness"] if (row["law"], row["epsilon"]) == ("laplace", 4.0))
    return [f"{worst:.1%}".replace("%", " %"), f"{int(100 * tight) / 100}"]


def peers() -> list[str]:
    row = next(row for row in result("peers_audit")["rows"] if row["mechanism"] == "diffprivlib Laplace")
    return [f"at least {int(100 * row['measured_at_least']) / 100}", f"{row['seconds']:.0f} seconds"]


def startup() -> list[str]:
    found = result("startup")["ratio_to_bare_interpreter"]
    return [f"{found['import discreet']['median']:.1f}×", f"{found['discreet --help']['median']:.1f}×"]


def ledger() -> list[str]:
    return [f"{result('ledger')['a_second']['in groups, 16']['median']:,} charges a second"]


def serve() -> list[str]:
    found = result("serve")
    assert all(found["goals"].values())
    return [
        f"{found['analysts']} programs", f"{found['requests']:,} requests", f"{found['ledger']['charges']:,} questions",
        f"{found['ledger']['refusals']:,} refused",
    ]  # fmt: skip


def sql() -> list[str]:
    parts = result("sql")["parts"]
    scale = parts["scale"]["database"]["rows"]
    peers = parts["peers"]["rows"]
    return [
        f"{parts['small']['rows']['discreet']['cpu_ms']:.0f} ms",
        f"{scale['discreet registered']['times_bare']:.1f}× of a registered table",
        f"{scale['discreet weighted']['times_bare']:.1f}× with weights",
        f"{scale['discreet sampled']['times_distinct']:.1f}× the time of",
        f"OpenDP takes {peers['opendp, 40 rows']['times_ours']:.0f}×",
        f"SmartNoise {peers['smartnoise, 40 rows']['times_ours']:.0f}×",
        f"PipelineDP {peers['pipelinedp, 4 groups of 10 rows']['times_ours']:.0f}×",
        f"{parts['disk']['rows']['discreet weighted']['memory_times_bare']:.1f}× its memory",
        f"sampled groups take {parts['disk']['rows']['discreet sampled']['memory_times_bare']:.1f}×",
    ]


def sql_errors() -> list[str]:
    """Errors beside the best peer's: of counts, sums and means in one query, alone, and of medians."""
    rows = [(asked, row["ours_of_best_peer"]) for case in result("sql_accuracy")["cases"].values()
            for asked, row in case.items() if "ours_of_best_peer" in row]  # fmt: skip
    together = [ratio for asked, ratio in rows if " of " in asked and not asked.startswith("median")]
    medians = [ratio for asked, ratio in rows if asked.startswith("median")]
    return [f"{min(together):.2f}–{max(together):.2f}× as far", f"{min(medians):.2f}–{max(medians):.2f}× as far off as OpenDP"]


def test_errors_alone_are_what_the_page_says() -> None:
    cases = result("sql_accuracy")["cases"].values()
    assert max(case[name]["ours_of_best_peer"] for case in cases for name in ("count", "sum")) < 1.085


def sql_intervals() -> list[str]:
    rows = [(name, row) for column in result("sql_intervals")["columns"].values() for name, row in column.items()]
    plain = [row for name, row in rows if name in ("count", "sum", "mean", "deviation")]
    ranked = [row for name, row in rows if name not in ("count", "sum", "mean", "deviation")]
    held = [100 * row["covered"] for row in plain]
    assert all(row["ratio"] <= 2.0 or row["width"] <= 3.01 * row["narrowest"] for row in ranked)
    return [f"{min(held):.0f}–{max(held):.0f} % of answers",
            f"{min(row['ratio'] for row in plain):.2f}–{max(row['ratio'] for row in plain):.2f}× as wide",
            f"in {100 * min(row['covered'] for row in ranked):.0f} % or more"]  # fmt: skip


def training() -> list[str]:
    parts = result("sgd")["parts"]
    ours = {name: row["variants"]["discreet"]["times_plain"] for name, row in parts["cpu"]["rows"].items()}
    theirs = [
        min(told["times_plain"] for name, told in row["variants"].items() if name.startswith(("opacus", "vmap", "jax-privacy")))
        for row in parts["cpu"]["rows"].values()
    ]
    cuda = [row["variants"]["discreet"]["times_plain"] for row in parts["cuda"]["rows"].values()]
    cases = result("sgd_accuracy")["cases"]
    shadows = result("shadow")["parts"]["cuda"]["rows"]["600-128-100, batch 100"]["64 models"]
    wide, small = (result("shadow")["parts"]["cpu"]["rows"][net] for net in ("600-128-100, batch 100", "30-64-2, batch 64"))
    return [
        ", ".join(f"{ours[net]:.2f}×" for net in ("mlp", "mlp-small", "mnist-cnn", "cifar-cnn")) + f" and {ours['gpt']:.2f}×",
        f"{min(theirs):.2f}–{max(theirs):.2f}×",
        f"{min(cuda):.2f}–{max(cuda):.2f}×",
        *(f"{cases[f'mnist-scatter-{epsilon}']['mean']:.2f} % at {epsilon}" for epsilon in ("1", "1.97", "3")),
        f"{cases['cifar-prior-3']['mean']:.2f} % at 3 (a linear layer", f"{cases['cifar-wrn-8']['mean']:.2f} % at 8 (WRN-16-4",
        f"1/{shadows['times_eager']:.0f} of the time of one by one, 1/{shadows['times_graphed']:.0f} where",
        f"1/{wide['times_one_by_one']:.1f} of the time of one by one (small ones 1/{small['times_one_by_one']:.0f})",
        f"Privacy Meter's own loop takes {wide['times_privacy_meter']:.1f}×, ART's {wide['times_art']:.0f}×",
    ]  # fmt: skip


def synth() -> list[str]:
    found = result("synth")
    rows = {(row["method"], row.get("epsilon")): row for row in found["adult"]}
    joined, tree, real = rows["junction", 1.0], rows["tree", 1.0], rows["the real rows", None]
    acs, nltcs = ({row["method"]: row for row in found[name]}["junction"] for name in ("acs", "nltcs"))
    beside, aims = ({row["method"]: row for row in found[f"peers_{name}"]} for name in ("adult", "nltcs"))
    peers = [(beside[f"{name}-mst"], beside[f"{name}-mst"]["tv2"]["mean"]) for name in ("mbi", "dpmm", "snsynth")]
    (mbi, dpmm, smartnoise) = (row["fit_cpu_s"]["mean"] for row, _ in peers)
    assert all(aims[f"{name}-aim"]["failed"] == "not finished after 120 CPU-seconds" for name in ("mbi", "dpmm", "snsynth"))
    at_zero = {(row["method"], row.get("epsilon")): row["auc"]["mean"] for row in result("synth_published_split")["published"]}
    again = {row["method"]: row for row in result("synth_tree")["tree"]}
    faster = again["mbi-mst"]["fit_cpu_s"]["mean"] / again["tree"]["fit_cpu_s"]["mean"]
    rounds = {row["method"]: (row["fit_cpu_s"]["mean"], row["tv3"]["mean"]) for row in result("synth_aim")["aim"]}
    least, _, most = found["large"]
    two, hundred = (
        {(row["rows"] > 10**6, row["columns"]): row for row in found["size"]}[key] for key in ((True, 15), (False, 100))
    )
    return [
        f"total variation of {joined['tv2']['mean']:.4f} over all pairs",
        f"{joined['tv3']['mean']:.4f} over 100 triples",
        f"AUC of {joined['auc']['mean']:.4f} ({joined['auc']['least']:.4f} to {joined['auc']['most']:.4f}) on real rows, "
        f"{100 * joined['auc_left']['mean']:.1f} % of what it has if trained on the real ones ({real['auc']['mean']:.4f})",
        f"{joined['fit_cpu_s']['mean']:.1f} CPU-seconds, and a tree",
        f"a tree of pairs ({tree['tv2']['mean']:.4f}) in {tree['fit_cpu_s']['mean']:.2f}",
        f"At ε = 0.1 the AUC is {rows['junction', 0.1]['auc']['mean']:.4f}",
        f"AUC is {at_zero['junction', 1.0]:.4f} at ε = 1 and {at_zero['junction', 0.1]:.4f} at ε = 0.1 "
        f"({at_zero['the real rows', None]:.4f} if",
        f"{acs['tv2']['mean']:.4f} in {acs['fit_cpu_s']['mean']:.1f} CPU-seconds",
        f"{nltcs['tv3']['mean']:.4f} in {nltcs['fit_cpu_s']['mean']:.1f} CPU-seconds",
        f"{100 * found['cover']['columns']:.1f} % of cells of columns",
        f"{100 * found['cover']['pairs']:.1f} % of cells of pairs",
        f"{mbi:.0f} CPU-seconds and {beside['mbi-mst']['memory_mb']['mean']:,.0f} MB written on mbi ({peers[0][1]:.4f}), "
        f"{dpmm:.0f} in dpmm ({peers[1][1]:.4f}), {smartnoise:.0f} and {beside['snsynth-mst']['memory_mb']['mean']:,.0f} MB in "
        f"smartnoise-synth ({peers[2][1]:.4f})",
        f"takes {beside['tree']['fit_cpu_s']['mean']:.2f} ({beside['tree']['tv2']['mean']:.4f})",
        f"nearest tables {again['tree']['tv2']['mean']:.4f} beside mbi's {again['mbi-mst']['tv2']['mean']:.4f}, in "
        f"1/{faster:.0f} of its CPU-seconds on a busy machine",
        f"ours takes {aims['aim']['fit_cpu_s']['mean']:.1f} ({aims['aim']['tv3']['mean']:.4f})",
        f"{rounds['published-aim'][0]:.0f} ({rounds['published-aim'][1]:.4f}), `aim` beside them {rounds['aim'][0]:.1f} "
        f"({rounds['aim'][1]:.4f}) and `junction` {rounds['junction'][0]:.1f} ({rounds['junction'][1]:.4f})",
        f"takes {most['tree_fit_cpu_s'] / most['duckdb_fit_cpu_s']:.2f} of the CPU-seconds and "
        f"{most['tree_memory_mb'] / most['duckdb_memory_mb']:.1f} times the memory ({most['tree_memory_mb']:.0f} MB)",
        f"{most['tree_fit_cpu_s'] / least['tree_fit_cpu_s']:.1f}-fold",
        f"it takes {two['fit_cpu_s']:.1f}, of 100 columns {hundred['fit_cpu_s']:.1f} CPU-seconds",
        f"at {two['sampled_rows_per_cpu_s'] / 1e6:.1f} million, and written to parquet at "
        f"{two['written_rows_per_cpu_s'] / 1e6:.1f} million",
    ]  # fmt: skip


def test_synthetic_tables_are_as_near_as_those_of_peers() -> None:
    """The tree within two percent of mbi's MST; on all triples of NLTCS, no worse than AIM's published rounds."""
    tree = {row["method"]: row["tv2"]["mean"] for row in result("synth_tree")["tree"]}
    assert tree["tree"] <= 1.02 * tree["mbi-mst"]
    triples = {row["method"]: row["tv3"] for row in result("synth_aim")["aim"]}
    assert max(triples["junction"]["most"], triples["aim"]["most"]) <= triples["published-aim"]["least"]


def test_verdicts_on_generators_are_those_of_five_runs() -> None:
    found = result("synth_attacks")["generators"]
    assert found["overfit"]["verdicts"] == ["refuted"] * 5
    assert found["tree epsilon 1"]["verdicts"] == found["junction epsilon 1"]["verdicts"] == ["holds"] * 5


def test_the_picture_of_growth_is_drawn_from_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    drawn = importlib.import_module("_synth_plot").drawn
    found = result("synth")
    assert (ROOT / "docs/theory/synth-growth.svg").read_text() == drawn(found["size"], found["large"])


def encryption() -> list[str]:
    rows = result("crypto")["rows"]
    step, momentum, mnist, scores = rows["step"]["step"], rows["step"]["step_with_momentum"], rows["mnist"], rows["scoring"]
    plain, sigmoid, update = rows["row"]["link_after_decryption"], rows["row"]["sigmoid_on_ciphertext"], rows["sum"]
    return [
        f"{rows['naive']['ratio'] / 1e6:.2f} million times numpy's time",
        f"{step['ratio']:.0f}× ({step['seconds']:.2f} CPU-seconds, {momentum['seconds']:.2f} with momentum; ",
        f"{step['seconds_with_messages']:.2f} with reading",
        f"{step['refresh_seconds']:.2f} of the key holder's",
        f"take {mnist['seconds']:.0f} CPU-seconds with all refreshes and are right on {100 * mnist['accuracy']:.2f} %",
        f"{scores['ratio']:.0f}× ({scores['ratio_with_reading']:.0f}× with reading",
        f"one row {1000 * plain['seconds']:.1f} ms, or {1000 * sigmoid['seconds']:.0f} ms",
        f"takes {1000 * update['encryption_seconds']:.0f} ms and {update['bytes_ratio']:.1f}× the bytes",
        f"{rows['intersection']['seconds']:.1f} CPU-seconds;",
        f"a gate of the readable scheme {1000 * rows['nand']['one']['seconds']:.0f} ms",
    ]


@pytest.mark.parametrize(
    "figures",
    [encryption, accounting, noise, audit, peers, startup, ledger, serve, sql, sql_errors, sql_intervals, synth, training],
)
def test_the_page_quotes_what_was_measured(figures) -> None:
    text = (ROOT / "docs/measured.md").read_text().replace("\n", " ")
    for figure in figures():
        assert figure in text, f"docs/measured.md does not show {figure!r}, which bench/results has"


def test_the_demo_takes_about_twenty_seconds() -> None:
    runs = result("demo")["runs"]
    assert all(15 <= run["wall_seconds"] <= 25 for run in runs)
    assert all(run["report_kilobytes"] < 150 for run in runs)
    assert "about 20 seconds" in (ROOT / "README.md").read_text()


def rows() -> dict[str, list[str]]:
    """What the rows of the README's table must say."""
    found = result("sgd")["parts"]["cpu"]["rows"].values()
    ours = [row["variants"]["discreet"]["times_plain"] for row in found]
    table = result("membership")["sets"]["location"]["table"]
    low = {row["attack"]: row["tpr_at_0.1_percent"] for row in table if row["references"] == 64}
    student, lira, rmia = (f"{100 * low[name]:.1f} %" for name in ("bayes_lira", "lira", "rmia"))
    shadows = result("shadow")["parts"]["cuda"]["rows"]["600-128-100, batch 100"]["64 models"]
    return {
        "ε of a training run": accounting()[:2],
        "exact discrete noise": noise(),
        "a private GROUP BY": [sql()[1], *sql()[4:7]],
        "a private training step": [f"{min(ours):.2f}–{max(ours):.2f}×", training()[1]],
        "true positives at 0.1 %": [f"`bayes_lira` {student}", f"LiRA {lira}", f"RMIA {rmia}"],
        "64 shadow models": [f"1/{shadows['times_eager']:.0f} of the time"],
    }


@pytest.mark.parametrize("row", rows())
def test_the_readme_quotes_what_was_measured(row: str) -> None:
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {row}"))
    for figure in rows()[row]:
        assert figure in line, f"README.md does not show {figure!r} of {row}, which bench/results has"
