"""Membership of texts and of authors in a language model of counts, on Reuters C50 (50 journalists, 100 articles each).

    python bench/text.py [--data ../shared/data] [--splits 5] [--out bench/results/text.json]

texts     the model (7 bytes in a row) counts 500 articles; 500 others by the same authors are the non-members
authors   the model counts 20 articles of each of 25 authors; the attacker knows 8 *other* articles of each of the 50

The reference model counts 1,000 further articles, 20 of each author. Articles are scored by their first 800 characters. The
spread is the standard deviation over random splits.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1"}

import numpy as np

from _record import write
from discreet.attack.text import NGram, text_membership, utf8

ORDER, CHARACTERS = 7, 800


def articles(data: Path) -> dict[str, list[str]]:
    from pyarrow.parquet import read_table

    found = read_table(data / "reuters-c50" / "c50.parquet").to_pydict()
    made: dict[str, list[str]] = {}
    for author, text in zip(found["author"], found["text"]):
        if text and text[:CHARACTERS] not in (kept := made.setdefault(author, [])):
            kept.append(text[:CHARACTERS])
    return {author: texts for author, texts in made.items() if len(texts) >= 60}


def counted(texts: list[str]) -> NGram:
    return NGram([utf8(text) for text in texts], order=ORDER)


def texts(known: dict[str, list[str]], seed: int) -> dict[str, float]:
    draw = np.random.default_rng(seed)
    every = {author: draw.permutation(np.array(each, dtype=object)).tolist() for author, each in known.items()}
    inside = [text for each in every.values() for text in each[:10]]
    outside = sorted({text for each in every.values() for text in each[10:20]} - set(inside))
    reference = counted([text for each in every.values() for text in each[20:40]])
    found = text_membership(counted(inside), sorted(set(inside)), outside, reference=reference)
    return {name: evidence.auc() for name, evidence in found.items()}


def authors(known: dict[str, list[str]], seed: int) -> dict[str, float]:
    draw = np.random.default_rng(seed)
    every = {author: draw.permutation(np.array(each, dtype=object)).tolist() for author, each in known.items()}
    names = draw.permutation(np.array(list(every), dtype=object)).tolist()
    ours, others = names[: len(names) // 2], names[len(names) // 2 :]
    target = counted([text for name in ours for text in every[name][:20]])
    reference = counted([text for each in every.values() for text in each[20:40]])
    sides = [[(name, text) for name in side for text in every[name][40:48]] for side in (ours, others)]
    lists = [[text for _, text in side] for side in sides]
    who = ([name for name, _ in sides[0]], [name for name, _ in sides[1]])
    by_text = text_membership(
        target, *lists, reference=reference, authors=(list(range(len(lists[0]))), list(range(-len(lists[1]), 0)))
    )
    by_author = text_membership(target, *lists, reference=reference, authors=who)
    return {**{f"{name}, one article": e.auc() for name, e in by_text.items()},
            **{f"{name}, 8 articles": e.auc() for name, e in by_author.items()}}  # fmt: skip


def repeated(measure: Any, known: dict[str, list[str]], splits: int) -> dict[str, dict[str, float]]:
    runs = [measure(known, seed) for seed in range(splits)]
    return {
        name: {"auc": round(float(np.mean([run[name] for run in runs])), 4),
               "spread": round(float(np.std([run[name] for run in runs], ddof=1)), 4)}
        for name in runs[0]
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DISCREET_DATA", "../shared/data")))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out")
    options = parser.parse_args()
    known = articles(options.data)
    began = time.process_time()
    found = {"authors": len(known), "splits": options.splits, "texts_auc": repeated(texts, known, options.splits),
             "authors_auc": repeated(authors, known, options.splits)}  # fmt: skip
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    for part in ("texts_auc", "authors_auc"):
        print(part)
        for name, row in found[part].items():
            print(f"  {name.ljust(28)} AUC {row['auc']:.3f} (spread {row['spread']:.3f})")
    write(options.out, found)


if __name__ == "__main__":
    main()
