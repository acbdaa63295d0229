"""Several processes give the result of one: same batches, sums added once, every number its noise once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from snippets import ROOT, blocks
from torch import nn

import discreet
import ranks
from discreet.errors import InvalidValue
from discreet.learn import Adaptive, Automatic, BallsInBins, BandMF, Checkpoint, Performance, PerLayer, Postprocess
from discreet.learn.sgd.distributed import Alone, joined

WRAPS = ("plain", "ddp", "split")
LINUX = sys.platform == "linux"


@pytest.fixture(scope="module")
def run_on(tmp_path_factory):
    if not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    processes = ranks.Ranks(4, tmp_path_factory.mktemp("ranks"))
    yield processes
    processes.close()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def close(found, wanted):
    """All processes hold the same weights, and these differ from those of one process by the order of sums alone."""
    same = all(np.array_equal(other[name], found[0][name]) for other in found for name in wanted)
    return same and all(np.allclose(found[0][name], wanted[name], rtol=2e-5, atol=2e-6) for name in wanted)


def equal(found, wanted):
    return all(np.array_equal(other[name], wanted[name]) for other in found for name in wanted)


@pytest.mark.parametrize("kind", ["mlp", "transformer"])
@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("wrap", WRAPS)
def test_equals_one_process(run_on, kind, world, wrap):
    """About three units a step, so that four processes have empty stripes in most steps."""
    wanted = ranks.trained(kind=kind)
    assert close(run_on(world, ranks.trained, kind=kind, wrap=wrap), wanted)


@pytest.mark.parametrize("kind", ["mlp", "transformer"])
@pytest.mark.parametrize("wrap", WRAPS)
def test_noise_is_that_of_one_process_bit_for_bit(run_on, kind, wrap):
    """Without gradients nothing is left to be rounded, so every number must be the same one."""
    wanted = ranks.trained(kind=kind, quiet=True, momentum=0.0)
    first = next(iter(wanted))
    assert (wanted[first] != ranks.made(kind)[0].state_dict()[first].numpy()).all()
    for world in (2, 4) if kind == "mlp" else (4,):
        assert equal(run_on(world, ranks.trained, kind=kind, wrap=wrap, quiet=True, momentum=0.0), wanted)


@pytest.mark.parametrize(
    ("twin", "wrap"),
    [("everywhere", "plain"), ("first_only", "plain"), ("same_place", "split"), ("first_only", "split")],
)
def test_noise_drawn_by_the_wrong_processes_is_refuted(run_on, twin, wrap):
    wanted = ranks.trained(quiet=True, momentum=0.0)
    found = run_on(2, ranks.broken, twin=twin, wrap=wrap, quiet=True, momentum=0.0)
    assert not equal(found, wanted)
    assert not close(found, wanted)
    if twin == "first_only":  # some weights were released without any noise at all
        start = ranks.made("mlp")[0].state_dict()
        assert any((found[0][name] == start[name].numpy()).any() for name in wanted if start[name].numel() and name != "1.seen")


def test_batches_that_are_empty_everywhere_are_steps(run_on):
    asked = {"rate": 0.01, "steps": 20}
    drawn = discreet.learn.sgd.sampling.Poisson(0.01)
    run, _ = ranks.begun(**asked)
    assert any(len(drawn.draw(run._state.key, step, 40)) == 0 for step in range(20))
    wanted = ranks.trained(**asked)
    for wrap in WRAPS:
        assert close(run_on(4, ranks.trained, wrap=wrap, **asked), wanted)


def test_units_of_several_rows_microbatches_and_a_ball(run_on):
    asked = {
        "unit": discreet.user("owner", rows=3), "owners": np.arange(40) % 17, "rate": 0.3,
        "performance": Performance(microbatch=2), "postprocess": Postprocess(radius=1.5),
        "divisor": 5.0,
    }  # fmt: skip
    wanted = ranks.trained(**asked)
    assert np.sqrt(sum((w**2).sum() for w in wanted.values())) == pytest.approx(1.5, rel=1e-5)
    for wrap in WRAPS:
        assert close(run_on(4, ranks.trained, wrap=wrap, **asked), wanted)


OTHERS = {
    "per layer": {"clip_norm": None, "clipping": PerLayer(0.7)},
    "automatic": {"clip_norm": None, "clipping": Automatic(0.7)},
    "a norm that follows a quantile": {"clip_norm": None, "clipping": Adaptive(0.7), "steps": 8},
    "correlated noise": {"rate": None, "sampling": BandMF(0.08, bands=3)},
    "balls in bins": {"rate": None, "sampling": BallsInBins(8), "steps": 8},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_clipping_sampling_and_noise(run_on, name):
    wanted = ranks.trained(**OTHERS[name])
    for wrap in (
        ("plain", "split") if "clipping" in OTHERS[name] or isinstance(OTHERS[name].get("sampling"), BandMF) else ("split",)
    ):
        assert close(run_on(4, ranks.trained, wrap=wrap, **OTHERS[name]), wanted)


@pytest.mark.parametrize("wrap", WRAPS)
def test_a_loop_of_ones_own(run_on, wrap):
    """Calls of a DistributedDataParallel model go straight through: its own exchange of gradients has nothing to do."""
    assert close(run_on(4, ranks.own_loop, wrap=wrap), ranks.trained())


@pytest.mark.parametrize("adam", [False, True])
def test_checkpoints_move_between_numbers_of_processes(run_on, tmp_path, adam):
    wanted = ranks.trained(adam=adam)
    split, whole = str(tmp_path / "split"), str(tmp_path / "whole")
    assert run_on(2, ranks.stopped, path=split, at=3, wrap="split", adam=adam) == [3, 3]
    assert close([ranks.trained(checkpoint=split, adam=adam)], wanted)
    split += " again"  # the first one's journal knows of sums that were added in another order
    assert run_on(2, ranks.stopped, path=split, at=3, wrap="split", adam=adam) == [3, 3]
    assert close(run_on(4, ranks.trained, wrap="split", checkpoint=split, adam=adam), wanted)
    assert run_on(2, ranks.stopped, path=whole, at=3, adam=adam) == [3, 3]
    assert close(run_on(2, ranks.trained, checkpoint=whole, adam=adam), wanted)


@pytest.mark.parametrize("wrap", ["plain", "split"])
def test_steps_repeated_by_another_number_of_processes_need_fresh_noise(run_on, tmp_path, wrap):
    """Sums are added in another order, so their last bits differ: with the same noise these would show."""
    place = str(tmp_path / "run")
    given = {"checkpoint": Checkpoint(place, every=3), "wrap": wrap}
    assert run_on(4, ranks.interrupted, at=5, **given) == [5] * 4
    before = (tmp_path / "run").read_bytes()
    for error in run_on(2, ranks.resumed, **given):
        assert "comes out otherwise" in error
    assert run_on(2, ranks.resumed, **{**given, "checkpoint": Checkpoint(place, every=3, resume="pay")}) == [(6, 2)] * 2
    assert (tmp_path / "run").read_bytes() != before


@pytest.mark.parametrize("wrap", ["plain", "split"])
def test_steps_repeated_by_as_many_processes_are_the_same(run_on, tmp_path, wrap):
    given = {"checkpoint": Checkpoint(str(tmp_path / "run"), every=3), "wrap": wrap}
    assert run_on(4, ranks.interrupted, at=5, **given) == [5] * 4
    assert run_on(4, ranks.resumed, **given) == [(6, 0)] * 4


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("wrap", ["plain", "split"])
def test_killed_processes_and_another_number_of_them(run_on, tmp_path_factory, tmp_path, wrap):
    """All four are killed two steps after the checkpoint. Four others repeat these steps bit for bit; two do not, and pay."""
    doomed = ranks.Ranks(4, tmp_path_factory.mktemp("doomed"))
    given = {"checkpoint": Checkpoint(str(tmp_path / "run"), every=3), "wrap": wrap}
    try:
        assert doomed.exits(4, ranks.killed, at=5, ranks=(0, 1, 2, 3), **given) == [-signal.SIGKILL] * 4
    finally:
        doomed.close()
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for error in run_on(2, ranks.resumed, **given):
        assert "comes out otherwise" in error
    for world, more in ((4, 0), (2, 2)):
        for name, data in left.items():
            (tmp_path / name).write_bytes(data)
        paying = {**given, "checkpoint": Checkpoint(str(tmp_path / "run"), every=3, resume="pay")}
        assert run_on(world, ranks.resumed, **paying) == [(6, more)] * world


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_one_process_is_killed_in_the_middle(run_on, tmp_path_factory, tmp_path):
    """The others fail with it, having released no more than the journal says; all go on as they were, and pay nothing."""
    doomed = ranks.Ranks(3, tmp_path_factory.mktemp("one"))
    given = {"checkpoint": Checkpoint(str(tmp_path / "run"), every=3)}
    try:
        assert doomed.exits(3, ranks.killed, at=4, ranks=(1,), **given) == [None, -signal.SIGKILL, None]
    finally:
        doomed.close()
    assert run_on(3, ranks.resumed, **given) == [(6, 0)] * 3


@pytest.mark.parametrize("wrap", ["ddp", "split"])
def test_paid_once_and_released_by_the_first(run_on, tmp_path, wrap):
    place, folder = str(tmp_path / "ledger.db"), tmp_path / "model"
    ledger = discreet.Ledger(place)
    ledger.open("people", unit=discreet.record(), epsilon=200.0, delta=1e-5)
    found = run_on(2, ranks.paid, place=place, folder=str(folder), wrap=wrap, kind="transformer")
    assert [entry.kind for entry in ledger.history("people")] == ["open", "reserve", "settle"]
    assert found[0]["entry"] is not None
    for name in ("entry", "spent", "divisor", "key"):
        assert found[0][name] == found[1][name]
    model = ranks.made("transformer", seed=1)[0]
    release = discreet.learn.read(folder, model)
    assert release.entry == found[0]["entry"]
    assert model.head.weight is model.table.weight
    assert equal([f["weights"] for f in found], {n: v.numpy() for n, v in model.state_dict().items()})


def test_a_budget_that_does_not_hold_it_stops_all(run_on, tmp_path):
    place = str(tmp_path / "ledger.db")
    discreet.Ledger(place).open("people", unit=discreet.record(), epsilon=0.01, delta=1e-5)
    asked = {"seeded": False, "source": "people", "place": place}
    (first, _), (second, why) = run_on(2, ranks.refused, **asked)
    assert (first, second) == ("BudgetExceeded", "DiscreetError")
    assert "0.01" in why


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"data": (torch.zeros(41, 6), torch.zeros(41, dtype=torch.long))}, "number of units"),
        ({"noise_multiplier": 0.9}, "plan"),
        ({"momentum": 0.5}, "optimizer"),
        ({"performance": Performance(microbatch=1)}, "microbatch"),
        ({"kind": "transformer"}, "parameters"),
    ],
)
def test_processes_asked_for_different_runs_are_refused(run_on, other, named):
    for kind, why in run_on(2, ranks.refused, other=other):
        assert kind == "InvalidValue"
        assert named in why
        assert "41" not in why


def test_after_needs_whole_gradients(run_on):
    for kind, why in run_on(2, ranks.refused, wrap="split", postprocess=Postprocess(gradient=discreet.learn.shrink)):
        assert kind == "InvalidValue"
        assert "Postprocess(gradient" in why


def test_the_script_of_the_guide_runs_under_torchrun(tmp_path):
    script = next(block.text for block in blocks(ROOT / "docs/guides/processes.md") if "init_process_group" in block.text)
    (tmp_path / "train.py").write_text(f"{script}\nprint('end of process', run.number)\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    more = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **({"GLOO_SOCKET_IFNAME": "lo"} if LINUX else {})}
    done = subprocess.run(launch, capture_output=True, text=True, cwd=tmp_path, timeout=120, env={**os.environ, **more})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("end of process 20") == 2
    model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 3))
    assert discreet.learn.read(tmp_path / "model", model).source == "data"


def test_without_processes_nothing_is_done():
    model = nn.Linear(2, 2)
    assert joined(model)[0] is model
    assert type(joined(model)[1]) is Alone
    with pytest.raises(InvalidValue, match="DataParallel"):
        joined(nn.DataParallel(model))
