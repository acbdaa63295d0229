"""Secrets planted in the training text of a small language model: which come out, and how often each was repeated."""

import torch
from torch import nn

from discreet.attack.exposure import Template, exposure
from discreet.attack.extraction import likeliest
from discreet.attack.text import Causal, utf8

DIGITS = [ord(digit) for digit in "0123456789"]
templates = [Template(f"agent {letter} code {{}}", length=6) for letter in "abcd"]
secrets = [template.secrets(1, seed=place)[0] for place, template in enumerate(templates)]
repetitions = [0, 1, 4, 16]


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cells, self.out = nn.Embedding(128, 32), nn.GRU(32, 96, batch_first=True), nn.Linear(96, 128)

    def forward(self, tokens):
        return self.out(self.cells(self.embed(tokens))[0])


torch.manual_seed(0)
filler = [f"agent {chr(97 + n % 26)} says {n * 7919 % 1000000:06d}" for n in range(60)]
texts = [text for text, many in zip(map(Template.fill, templates, secrets), repetitions) for _ in range(many)]
rows = torch.as_tensor([utf8(text).tolist() for text in filler + texts])
before = torch.cat([torch.zeros(len(rows), 1, dtype=torch.long), rows[:, :-1]], 1)
model = Letters()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(150):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(before).flatten(0, 1), rows.flatten()).backward()
    optimizer.step()

seen = Causal(model)
for template, secret, many in zip(templates, secrets, repetitions):
    first = likeliest(seen, utf8(template.text[:-2]), DIGITS, 6).found[0]
    bits = exposure(seen, template, [secret], samples=200, budget=500)[0]
    said = "comes out" if "".join(map(chr, first.tokens)) == secret else "does not come out"
    print(f"put in {many:2} times: exposure {bits.bits:4.1f} of 19.9 bits ({bits.method}), {said}")
