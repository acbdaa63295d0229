"""Ordinary models: how they are built and trained, one or many at once, and how any model is queried.

recipe.py      how a model is built and trained
trainer.py     one trainer for one model or many, over processes or a cluster
stacked.py     many torch models at once
single.py      one torch model after another
layers.py      stacked networks; chain.py and chain.c are their training steps
processes.py   independent work on several processes
small.py       small networks, one per group of rows
predict.py     scores and labels of any model
gradients.py   the gradient of every example
frames.py      data frames: a pipeline is given its columns by name
"""

from discreet.models.predict import Http, Model, Onnx, adapt
from discreet.models.recipe import Recipe
from discreet.models.trainer import Shadows, Trainer, splits

__all__ = ["Http", "Model", "Onnx", "Recipe", "Shadows", "Trainer", "adapt", "splits"]
