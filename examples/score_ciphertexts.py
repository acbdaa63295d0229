"""Scores from a machine that cannot read the rows, and a release of them for somebody else."""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from discreet import Ledger, crypto, record
from discreet.crypto.wire import ScoringClient, ScoringServer

rng = np.random.default_rng(0)
X = rng.standard_normal((400, 4)).clip(-4, 4)
fitted = LogisticRegression().fit(X, X[:, 0] - X[:, 1] > 0)

# The model's owner converts and serves it. The server gets public keys and ciphertexts, and nothing else.
model = crypto.convert(fitted)
with ScoringServer(model) as server:
    # The key holder encrypts; whoever sends needs the public key alone.
    secret, public = crypto.keygen("linear", features=4)
    request = crypto.encrypt(secret, X[:5])
    client = ScoringClient(server.url)
    client.send_key(public)
    answer = client.score(request)

error = crypto.error_bound(model, public)
scores = crypto.decrypt(secret, answer, request=request)  # for the key holder's own eyes: raw numbers give the key away
plain = fitted.predict_proba(X[:5])[:, 1]
print(f"largest error {np.abs(scores[:, 0] - plain).max():.1e}, at most {error:.1e}")
assert np.abs(scores[:, 0] - plain).max() < error

# Handed to somebody else, scores are rounded and counted. The claim is about what the server saw; the scores have none.
with tempfile.TemporaryDirectory() as folder:
    ledger = Ledger(Path(folder) / "clinic.db")
    row = record("replace")  # messages show how many rows there are, so the claim is not for one that is added or removed
    ledger.open("patients", unit=row, epsilon=1.0, delta=1e-6)
    handed = crypto.disclose(
        secret, answer, grid=1 / 16, error=error, unit=row, source="patients", ledger=ledger, request=request
    )
(claim,) = handed.claims
print(sorted(claim.game.view), claim.assumptions[0])
assert claim.game.view == {"ciphertexts"}
