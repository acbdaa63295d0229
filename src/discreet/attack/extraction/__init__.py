"""What comes out of a language model verbatim.

reading.py    log-probabilities of many texts at once; how a model is sampled
search.py     the likeliest continuations, exactly
suffixes.py   (n, p)-discoverable extraction of known texts, against a control
generate.py   texts that the model makes by itself, ranked
hugging.py    models of Hugging Face from a folder
"""

from discreet.attack.extraction.generate import Generation, generate_and_rank
from discreet.attack.extraction.hugging import encoder, from_folder
from discreet.attack.extraction.reading import Sampling
from discreet.attack.extraction.search import Continuation, Likeliest, likeliest
from discreet.attack.extraction.suffixes import Extraction, discoverable, extraction, sampled

__all__ = [
    "Continuation",
    "Extraction",
    "Generation",
    "Likeliest",
    "Sampling",
    "discoverable",
    "encoder",
    "extraction",
    "from_folder",
    "generate_and_rank",
    "likeliest",
    "sampled",
]
