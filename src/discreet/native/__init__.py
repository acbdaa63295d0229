"""The machine below Python: C compiled on the spot, and the garbage collector. Nothing here knows what privacy is."""
