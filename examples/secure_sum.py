"""Five hospitals add up their counts; one drops out; the server learns the sum and no hospital's own."""

import numpy as np

from discreet.federate import Identity, SecureSum

COUNTS = np.array([[12, 3, 40], [7, 9, 22], [30, 1, 18], [5, 5, 5], [11, 2, 60]])

plan = SecureSum(size=3, clients=5, clip=1000.0, threshold=3, bits=11)
identities = [Identity() for _ in COUNTS]
roster = [identity.public for identity in identities]
server = plan.server(roster, round=0)
hospitals = [plan.client(number, identity, roster, round=0) for number, identity in enumerate(identities)]

for hospital in hospitals:
    server.receive(hospital.keys())
for number, message in server.proceed().items():
    server.receive(hospitals[number].shares(message))
for number, message in server.proceed().items():
    if number != 2:  # has dropped out
        server.receive(hospitals[number].masked(message, COUNTS[number]))
for number, message in server.proceed().items():
    server.receive(hospitals[number].answer(message))

total, stayed = server.total()
print(f"The sum over hospitals {stayed} is {total.tolist()}; the server saw masked numbers below {plan.modulus} otherwise.")
print(f"At least {plan.least_honest(colluding=0)} hospitals are in anything a lying server could open.")
