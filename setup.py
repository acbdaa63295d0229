"""The optional C extension: one shared library for each text and each level of x86-64 processors; see src/discreet/native."""

from __future__ import annotations

import platform

from setuptools import Extension, setup

FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math"]  # the last two let loops vectorise
LEVELS = {"base": [], "v3": ["-march=x86-64-v3", "-maes"], "v4": ["-march=x86-64-v4", "-maes", "-mvaes"]}
TEXTS = {  # how a multiplication and an addition may be contracted into one rounding: never where bits must be numpy's
    "normal": "-ffp-contract=off",
    "kernels": "-ffp-contract=fast",
    "chain": "-ffp-contract=fast",
}

levels = LEVELS if platform.machine() in ("x86_64", "AMD64") and platform.system() == "Linux" else {"base": []}
setup(
    ext_modules=[
        Extension(
            f"discreet.native._{name}_{level}",
            [f"src/discreet/native/{name}.c"],
            depends=["src/discreet/native/normal.h"],
            extra_compile_args=[*FLAGS, contraction, *flags],
            libraries=["m"],
            optional=True,  # without a compiler numpy and torch do the work
        )
        for name, contraction in TEXTS.items()
        for level, flags in levels.items()
        if platform.system() != "Windows"
    ]
)
