"""A hospital's client sends one gradient of eight patients: what is read out of it, and what noise leaves."""

import torch
from torch import nn

import discreet
from discreet.accounting import calibrate
from discreet.attack.gradients import server
from discreet.core import Gaussian

torch.manual_seed(0)
schema = {
    "sex": ["F", "M"], "ward": ["A", "B", "C", "D"], "code": [str(number) for number in range(20)],
    "age": (0.0, 1.0), "dose": (0.0, 1.0),
}  # fmt: skip
model = nn.Sequential(nn.Linear(28, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 2))
names = list(dict(model.named_parameters()))

# Eight patients, as the network sees them: categories one-hot, numbers as they are.
kinds = [nn.functional.one_hot(torch.randint(width, (8,)), width) for width in (2, 4, 20)]
rows, labels = torch.cat([*kinds, torch.rand(8, 2)], 1), torch.randint(2, (8,))


def gradient(net: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(nn.functional.cross_entropy(net(inputs), targets), list(net.parameters())))


found = discreet.attack.gradients(model, dict(zip(names, gradient(model, rows, labels))), batch=8, data=schema)
print(f"{found.method}: {int(found.exact.sum())} of 8 patients read exactly in {found.seconds:.2f} CPU seconds")
assert bool(found.exact.all())
assert max(found.distance(row) for row in rows) < 1e-4

# The same update, each patient's part clipped and Gaussian noise added: epsilon 8 for one patient replaced.
parts = [gradient(model, rows[i : i + 1], labels[i : i + 1]) for i in range(8)]
sizes = [float(torch.cat([value.flatten() for value in part]).norm()) for part in parts]
clip, noise = 1.0, calibrate(Gaussian, 8.0, 1e-5)  # a public clip norm, not one read off the patients
noisy = {
    name: sum(part[place] * min(1.0, clip / size) for part, size in zip(parts, sizes)) / 8
    + 2 * clip * noise / 8 * torch.randn(parts[0][place].shape)
    for place, name in enumerate(names)
}
found = discreet.attack.gradients(model, noisy, batch=8, data=schema, seconds=1, steps=50)
print(
    f"with noise: {int(found.exact.sum())} of 8 exactly; the gradient of the guess is {found.residual:.1f} times its size away"
)
assert not bool(found.exact.any())

# A malicious server sends weights of its own and sees only the sum over two hospitals.
public = torch.cat(
    [nn.functional.one_hot(torch.randint(width, (500,)), width) for width in (2, 4, 20)] + [torch.rand(500, 2)], 1
)
sent = server.imprint(model, (28,), public, bins=64)
halves = [gradient(sent, rows[part], labels[part]) for part in torch.arange(8).chunk(2)]
total = {name: one + other for name, one, other in zip(dict(sent.named_parameters()), *halves)}
seen, _ = server.read(sent, total, (28,))
read = sum(float((seen - row).abs().max(1).values.min()) < 1e-3 for row in rows)
print(f"through a secure sum of two clients, a server that chose the weights reads {read} of 8 patients")
assert read >= 5
