"""Compiled text with a fault put in."""

from __future__ import annotations

from pathlib import Path

from discreet.native import compiler


def mutated(module, file, right, wrong, monkeypatch):
    """What `module` would use if its C text said `wrong` where it says `right`."""
    assert right in Path(module.__file__).with_name(file).read_text()
    build = compiler.library
    monkeypatch.setattr(compiler, "library", lambda name, text, *flags: build(name, text.replace(right, wrong), *flags))
    return module.compiled.__wrapped__()
