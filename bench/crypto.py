"""What computing on ciphertexts costs, against numpy on the same work, in turn; and every other figure of the encryption pages.

    python bench/crypto.py [ROW ...] [--data FOLDER] [--rounds N] [--out bench/results/crypto.json]
        [--plot docs/theory/lwe-noise.svg]

Times are CPU seconds of one thread, medians over the rounds. Rows: naive, step, mnist, scoring, row, sum,
intersection, nand, noise. `--data` is a folder with mnist/ (idx files); without it the row mnist is left out.
With --out, rows that did not run are kept from the file that is there, each with its own date.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import datetime
import gzip
import json
import math
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from _record import write
from discreet import crypto
from discreet.core import Unit
from discreet.crypto import lwe, sums
from discreet.crypto.descent import Trainer
from discreet.crypto.disclosure import ciphertext_claim
from discreet.crypto.messages import TrainingMessage
from discreet.crypto.model import Layer
from discreet.crypto.plan import Plan
from discreet.crypto.training import KeyHolder

SEED = 0


def clock(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def in_turn(encrypted: Callable[[], Any], plain: Callable[[], Any], rounds: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds of both, interleaved, and their ratio."""
    plain()
    pairs = []
    for _ in range(rounds):
        seconds, _ = clock(encrypted)
        fast, _ = clock(lambda: [plain() for _ in range(repeats)])
        pairs.append((seconds, fast / repeats))
    ratios = sorted(one / two for one, two in pairs)
    return {
        "seconds": statistics.median(one for one, _ in pairs), "numpy_seconds": statistics.median(two for _, two in pairs),
        "ratio": statistics.median(ratios), "ratio_lowest": ratios[0], "ratio_highest": ratios[-1],
    }  # fmt: skip


def naive(rounds: int, _: Path | None) -> dict[str, Any]:
    """A gradient step with one ciphertext for each row, as tutorials of TenSEAL do it: the lectures' factor of a million."""
    import tenseal

    rng = np.random.default_rng(SEED)
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, 16384, coeff_mod_bit_sizes=[60, 40, 40, 40, 40, 40, 40, 60], n_threads=1
    )
    context.generate_galois_keys()
    context.global_scale = 2.0**40
    X, y, w = 0.2 * rng.standard_normal((64, 8)), (rng.random(64) > 0.5).astype(float), np.full(8, 0.01)
    rows, labels = ([tenseal.ckks_vector(context, item) for item in items] for items in (X, y[:, None]))
    weights = tenseal.ckks_vector(context, w)
    found: list[Any] = []

    def encrypted() -> None:
        gradient = None
        for row, label in zip(rows, labels, strict=True):
            part = row * (row.dot(weights).polyval([0.5, 0.197, 0, -0.004]) - label)
            gradient = part if gradient is None else gradient + part
        found[:] = [weights - gradient * (1 / 64)]

    def plain() -> Any:
        z = X @ w
        return w - X.T @ (0.5 + 0.197 * z - 0.004 * z**3 - y) / 64

    times = in_turn(encrypted, plain, min(rounds, 3), 500)
    return {"features": 8, "rows": 64, **times, "error": float(np.abs(np.array(found[0].decrypt())[:8] - plain()).max())}


def step(rounds: int, _: Path | None) -> dict[str, Any]:
    """A gradient step of 8,192 rows and 196 features, data, labels and weights encrypted: packed by feature."""
    rng = np.random.default_rng(SEED)
    X = np.column_stack([(0.2 * rng.standard_normal((8192, 195))).clip(-1, 1), np.ones(8192)])
    y = (rng.random(8192) > 0.5).astype(float)
    found: dict[str, Any] = {"features": 196, "rows": 8192, "must_ratio": 450, "goal_ratio": 200, "must_seconds": 0.6}
    for name, nesterov in (("step", False), ("step_with_momentum", True)):
        plan = Plan(196, 8192, rounds + 1, 1.0, 1.0, nesterov=nesterov)
        secret, public = crypto.keygen("training", features=196)
        holder = KeyHolder(secret, plan)
        seconds, rows = clock(lambda: holder.encrypt(X[:, :-1], y))  # noqa: B023
        found["encryption_seconds"], found["bytes"] = seconds, sum(map(len, rows.parts))
        c0, c1, _, c3 = plan.polynomial.coefficients
        trainer, state = Trainer(public, rows), {"weights": holder.start(), "before": np.zeros(196)}
        forms = [(0, 2.0**40 / plan.weight_parts)] * 98 + [(2, plan.packed_scale / plan.weight_parts)]
        whole, arithmetic, fresh, plain_times, errors = [], [], [], [], []
        for momentum in plan.momentum:
            now, before = holder.weights, state["before"]
            read, parsed = clock(lambda: state["weights"].ciphertexts(public.cipher, forms))  # noqa: B023
            seconds, total = clock(lambda: trainer.advance(parsed))  # noqa: B023
            written, part = clock(lambda: public.cipher.to_bytes(total))  # noqa: B023
            answer = TrainingMessage("step", public.id, plan, trainer.done, (part,), state["weights"].message)
            refreshed, weights = clock(lambda: holder.refresh(answer))  # noqa: B023

            def plain(now: Any = now, before: Any = before, momentum: float = momentum) -> Any:
                point = now + momentum * (now - before)
                z = X @ point
                return point - (X.T @ (c0 + z * (c1 + c3 * z * z) - y)) / 8192  # noqa: B023

            plain()
            fast, results = clock(lambda: [plain() for _ in range(20)])
            errors.append(float(np.abs(holder.weights - results[0]).max()))
            arithmetic.append(seconds)
            whole.append(read + seconds + written)
            fresh.append(refreshed)
            plain_times.append(fast / 20)
            state = {"weights": weights, "before": now}
        pairs = list(zip(arithmetic, plain_times, strict=True))
        found[name] = {
            "seconds": statistics.median(arithmetic), "numpy_seconds": statistics.median(plain_times),
            "ratio": statistics.median(one / two for one, two in pairs),
            "ratio_lowest": min(one / two for one, two in pairs), "ratio_highest": max(one / two for one, two in pairs),
            "seconds_with_messages": statistics.median(whole), "refresh_seconds": statistics.median(fresh),
            "error": max(errors), "stated_error": plan.error_bound(public.cipher.moduli),
        }  # fmt: skip
    return found


def digits(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """The digits 3 and 8 as 14 x 14 pixels in [0, 1], and whether each is an 8."""
    images, labels = (
        gzip.decompress((folder / "mnist" / f"{part}-{kind}.gz").read_bytes())
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    count = struct.unpack(">i", images[4:8])[0]
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(count, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(count, 196) / 255
    numbers = np.frombuffer(labels, np.uint8, offset=8)
    kept = (numbers == 3) | (numbers == 8)
    return pixels[kept], (numbers[kept] == 8).astype(int)


def mnist(_: int, folder: Path | None) -> dict[str, Any] | None:
    """32 iterations on 3 against 8, all 11,982 training rows, messages and refreshes included."""
    if folder is None:
        print("mnist: left out, since no --data was given")
        return None
    X, y = digits(folder, "train")
    test, labels = digits(folder, "t10k")
    wall, start = time.perf_counter(), time.process_time()
    fitted = crypto.fit_logistic(X, y, iterations=32, learning_rate=0.5, bound=1.0, radius=28.0)  # no score is beyond it
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    plain = fitted.plan.plain(np.column_stack([X, np.ones(len(X))]), y)
    scores = np.column_stack([test, np.ones(len(test))]) @ plain
    return {
        "rows": len(X), "features": 196, "iterations": 32, "seconds": seconds, "wall_seconds": wall, "load": os.getloadavg()[0],
        "refreshes": fitted.refreshes, "accuracy": float((fitted.predict(test) == labels).mean()),
        "plain_accuracy": float(((scores > 0) == labels).mean()), "largest_score": float(np.abs(scores).max()),
        "weights_error": float(np.abs(np.append(fitted.coefficients, fitted.intercept) - plain).max()),
        "stated_error": fitted.error, "must_seconds": 120, "goal_seconds": 45,
    }  # fmt: skip


def _logistic(features: int) -> tuple[crypto.Model, crypto.Model]:
    weights = 0.05 * np.random.default_rng(SEED).standard_normal((1, features))
    layer = Layer(weights, np.array([0.1]))
    from discreet.crypto.polynomial import fit

    return crypto.Model((layer,), "logistic"), crypto.Model(
        (Layer(*(weights, np.array([0.1])), fit("sigmoid", 8.0)),), "probability"
    )


def scoring(rounds: int, _: Path | None) -> dict[str, Any]:
    """Linear scores of 4,096 rows of 784 features, one ciphertext for each feature; the link is applied after decryption."""
    model, _polynomial = _logistic(784)
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-1, 1, (4096, 784))
    secret, public = crypto.keygen("linear", features=784)
    encryption, request = clock(lambda: crypto.encrypt(secret, X, bound=1.0))
    scorer, holder = crypto.Scorer(model), {}
    reading, inputs = clock(lambda: tuple(request.ciphertexts(public.cipher)))
    parsed = crypto.Encrypted(request.key, request.parameters, "rows", 4096, 784, 1.0, inputs)

    def encrypted() -> None:
        holder["answer"] = scorer.score(public, parsed)

    times = in_turn(encrypted, lambda: X @ model.layers[0].weights.T + 0.1, rounds, 20)
    cipher = public.cipher
    slots = secret.slots(holder["answer"].ciphertexts(cipher)[0]).real
    return {
        "features": 784, "rows": 4096, **times,
        "row_milliseconds": times["seconds"] / 4.096, "encryption_seconds": encryption,
        "reading_seconds": reading, "ratio_with_reading": (times["seconds"] + reading) / times["numpy_seconds"],
        "error": float(np.abs(slots - model(X)[:, 0]).max()),
        "stated_error": crypto.error_bound(model, public, bound=1.0), "must_ratio": 400, "goal_ratio": 100,
    }  # fmt: skip


def row(rounds: int, _: Path | None) -> dict[str, Any]:
    """One row of 784 features in one ciphertext: with the sigmoid on the ciphertext, and with the link after decryption."""
    found: dict[str, Any] = {"features": 784, "must_seconds": 0.15, "goal_seconds": 0.05}
    for name, model in zip(("link_after_decryption", "sigmoid_on_ciphertext"), _logistic(784), strict=True):
        secret, public = crypto.keygen(model.purpose, features=784)
        x = np.random.default_rng(SEED).uniform(-1, 1, 784)
        request, scorer, holder = crypto.encrypt(secret, x, bound=1.0), crypto.Scorer(model), {}
        parsed = crypto.Encrypted.from_bytes(request.to_bytes())

        def encrypted(scorer: Any = scorer, public: Any = public, parsed: Any = parsed, holder: Any = holder) -> None:
            holder["answer"] = scorer.score(public, parsed)

        encrypted()
        times = in_turn(encrypted, lambda model=model, x=x: model(x), rounds, 200)
        value = crypto.decrypt(secret, holder["answer"])[0, 0]
        wanted = model(x)[0, 0] if model.link == "probability" else 1 / (1 + np.exp(-model(x)[0, 0]))
        found[name] = {
            **times, "error": float(abs(value - wanted)), "stated_error": crypto.error_bound(model, public, bound=1.0)
        }  # fmt: skip
    return found


def encrypted_sum(rounds: int, _: Path | None) -> dict[str, Any]:
    """Ten updates of 100,000 numbers: encrypted, added with noise, decrypted."""
    rng = np.random.default_rng(SEED)
    plan = sums.SumPlan(size=100_000, clients=10, clip_norm=1.0, granularity=2.0**-20, sigma=1.0)
    secret, public = crypto.keygen("sum", features=1)
    updates = [0.001 * rng.standard_normal(100_000).astype(np.float32) for _ in range(10)]
    clients, adding, opening = [], [], []
    for _ in range(rounds):
        spent = [clock(lambda update=update: sums.encrypt_update(public, plan, update)) for update in updates]
        server = sums.SumServer(public, plan)
        adding.append(clock(lambda: [server.add(message) for _, message in spent])[0])  # noqa: B023
        noise, total = clock(server.noisy_sum)
        adding[-1] += noise
        opening.append(clock(lambda: sums._decrypted(secret, plan, total))[0])  # noqa: B023
        clients += [seconds for seconds, _ in spent]
    size = len(spent[0][1].to_bytes())
    opened = sums._decrypted(secret, plan, total)
    return {
        "clients": 10, "size": 100_000, "encryption_seconds": statistics.median(clients),
        "server_seconds": statistics.median(adding),
        "decryption_seconds": statistics.median(opening), "bytes": size, "bytes_ratio": size / 400_000,
        "noise_deviation": float((opened - np.sum(updates, axis=0)).std()), "sigma": plan.sigma,
        "must_seconds": 0.1, "must_bytes_ratio": 14.7, "goal_bytes_ratio": 8,
        "claims": [claim.to_json() for claim in plan.claims(Unit("client", "zero_out", rows=1))],
    }  # fmt: skip


def intersection(rounds: int, _: Path | None) -> dict[str, Any]:
    """Both sides of an intersection of two lists of 10,000 items, half of them common."""
    mine, theirs = ([b"%d" % n for n in range(start, start + 10_000)] for start in (0, 5_000))
    spent = [clock(lambda: crypto.intersect(mine, theirs)) for _ in range(min(rounds, 3))]
    assert len(spent[0][1]) == 5_000
    return {"items": 10_000, "seconds": statistics.median(seconds for seconds, _ in spent), "must_seconds": 3.4}


def nand(rounds: int, _: Path | None) -> dict[str, Any]:
    """A gate of the readable scheme, with bootstrapping, at its secure parameters: alone, and in a batch."""
    making, (secret, cloud) = clock(lambda: lwe.keygen(lwe.SECURE))
    found: dict[str, Any] = {"keygen_seconds": making}
    for name, count in (("one", 4), ("batch", 64)):
        x, y = np.arange(count) % 2, np.arange(count) // 2 % 2
        ones, twos = secret.encrypt(x), secret.encrypt(y)
        if name == "one":
            seconds = statistics.median(clock(lambda: cloud.nand(ones[:1], twos[:1]))[0] for _ in range(rounds))  # noqa: B023
            right = np.array_equal(secret.decrypt(cloud.nand(ones, twos)), 1 - x * y)
        else:
            spent, result = clock(lambda: cloud.nand(ones, twos))  # noqa: B023
            seconds, right = spent / count, np.array_equal(secret.decrypt(result), 1 - x * y)
        found[name] = {"seconds": seconds, "right": bool(right)}
    return found


def noise(_: int, __: Path | None) -> dict[str, Any]:
    """Noise of sums, which grows with their length, and of gates, which does not: measured and by theory, secure parameters."""
    secret, cloud = lwe.keygen(lwe.SECURE)
    bits = np.arange(96) % 2
    x, ones, gates = secret.encrypt(bits), secret.encrypt(np.ones_like(bits)), []
    for depth in range(1, 7):
        x, bits = cloud.nand(x, ones), 1 - bits
        phase = secret.phase(x) - np.where(bits == 1, 0.125, -0.125)
        gates.append({"gates": depth, "measured": float(np.sqrt(np.mean(phase**2))), "theory": lwe.SECURE.gate_noise})
    sums_of, zeros = [], secret.encrypt(np.tile([0, 1], 64 * 256)).reshape(256, 128, -1)
    for count in (1, 4, 16, 64, 256):
        total = zeros[:count].sum(axis=0, dtype=np.uint32)
        wanted = (count * np.where(np.arange(128) % 2, 0.125, -0.125) + 0.5) % 1 - 0.5
        error = (secret.phase(total) - wanted + 0.5) % 1 - 0.5
        sums_of.append({"terms": count, "measured": float(np.sqrt(np.mean(error**2))), "theory": count**0.5 * lwe.SECURE.noise})
    return {"gates": gates, "sums": sums_of, "limit": 0.125, "failure": lwe.SECURE.failure}


def plot(found: dict[str, Any]) -> str:
    """Deviations against the number of operations, both on a log scale; theory as lines, measurements as points."""
    left, right, top, bottom = 64, 480, 30, 300

    def at(count: float, deviation: float) -> tuple[float, float]:
        across = left + 8 + (right - left - 16) * math.log2(count) / 8
        return across, top + (bottom - top) * (-1 - math.log2(deviation)) / 16

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 350" role="img" font-family="system-ui, sans-serif" '
        'font-size="12" fill="#555">', "<title>Noise of sums and of bootstrapped gates, measured and by theory</title>",
        '<text x="8" y="14">standard deviation of the noise (a share of the modulus)</text>',
    ]  # fmt: skip
    for power in range(-17, 0, 2):
        y = at(1, 2.0**power)[1]
        parts.append(f'<path d="M{left} {y:.1f} H{right}" stroke="#999" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{left - 6}" y="{y:.1f}" dy="4" text-anchor="end">2^{power}</text>')
    for power in range(0, 9, 2):
        parts.append(f'<text x="{at(2.0**power, 1)[0]:.1f}" y="{bottom + 18}" text-anchor="middle">{2**power}</text>')
    (x0, y0), (x1, _) = at(1, found["limit"]), at(256, 1)
    parts.append(f'<path d="M{x0:.1f} {y0:.1f} H{x1:.1f}" stroke="#a00" stroke-dasharray="4 4"/>')
    parts.append(f'<text x="{x1:.1f}" y="{y0 - 5:.1f}" text-anchor="end" fill="#a00">1/8: bits are lost</text>')
    for name, count, colour, says in (
        ("sums", "terms", "#d9541e", "a sum of so many ciphertexts"), ("gates", "gates", "#3b6fd4", "after so many gates"),
    ):  # fmt: skip
        line = " L".join("{:.1f} {:.1f}".format(*at(row[count], row["theory"])) for row in found[name])
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        for row in found[name]:
            x, y = at(row[count], row["measured"])
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{colour}"/>')
        x, y = at(found[name][-1][count], found[name][-1]["theory"])
        parts.append(f'<text x="{x - 4:.1f}" y="{y - 9:.1f}" text-anchor="end" fill="{colour}">{says}</text>')
    parts.append(f'<text x="{(left + right) / 2:.0f}" y="{bottom + 40}" text-anchor="middle">operations</text></svg>')
    return "".join(parts) + "\n"


ROWS = {
    "naive": naive, "step": step, "mnist": mnist, "scoring": scoring, "row": row, "sum": encrypted_sum,
    "intersection": intersection, "nand": nand, "noise": noise,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"any of {', '.join(ROWS)}; all of them without")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path, help="write the picture of the row noise as SVG")
    how = parser.parse_args()
    if unknown := set(how.rows) - set(ROWS):
        parser.error(f"there is no row {', '.join(sorted(unknown))}")
    results: dict[str, Any] = json.loads(how.out.read_text())["rows"] if how.out and how.out.exists() else {}
    claim = ciphertext_claim(crypto.keygen("training", features=2)[0].parameters, Unit("record", "replace", rows=1))
    what = {"what": "CPU seconds of one thread; ratios to numpy on the same work, in turn", "seed": SEED}
    for name in how.rows or ROWS:
        found = ROWS[name](how.rounds, how.data)
        if found is not None:
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            results[name] = {"date": today, "load": os.getloadavg()[0], **found}
            print(name, json.dumps(results[name], indent=1), flush=True)
            kept = {name: results[name] for name in ROWS if name in results}
            write(how.out, {**what, "training_claim": claim.to_json(), "rows": kept}, "tenseal")
    if how.plot:
        how.plot.write_text(plot(results["noise"]), encoding="utf-8")


if __name__ == "__main__":
    main()
