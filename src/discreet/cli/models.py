"""Models, recipes and rows from users' files."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.cli.output import progress, talk
from discreet.errors import InvalidValue, MissingExtra

if TYPE_CHECKING:
    from discreet.models import Recipe

INDEX = re.compile(r"__index_level_\d+__")  # what pandas writes of its index: no column of anyone's
WHOLE = 2.0**24  # up to here 32-bit floats keep whole numbers apart
PICKLES = (".joblib", ".pkl", ".pickle")
SECONDS = float(os.environ.get("DISCREET_PROGRESS", "10"))  # between two lines of progress where there is no terminal


def read_recipe(path: str) -> Recipe:
    """The `recipe` that a Python file defines. The file is run, as by `python FILE`: it may do whatever its user may."""
    file = _there(path, "a Python file that defines recipe = Recipe(…)")
    talk(f"Running {file.name}: a recipe is a Python program, and may do whatever you may. Run only files that you trust.")
    import runpy

    from discreet.models import Recipe

    sys.path.insert(0, str(file.parent.resolve()))  # as python does: a recipe may import its neighbours
    try:
        found = runpy.run_path(str(file), run_name="recipe").get("recipe")
    except (Exception, SystemExit) as error:
        lines = [f" in line {each.lineno}" for each in traceback.extract_tb(error.__traceback__) if each.filename == str(file)]
        raise InvalidValue(f"{path!r} stopped with {type(error).__name__}{''.join(lines[-1:])}: {str(error)[:200]}") from error
    if not isinstance(found, Recipe):
        what = "defines no recipe" if found is None else f"defines a recipe that is a {type(found).__name__}"
        more = ", or defence(…).recipe" if hasattr(found, "recipe") else ""
        raise InvalidValue(f"{path!r} {what}; it must say recipe = discreet.models.Recipe(…){more}.")
    return found


def read_rows(
    path: str, target: str, by: Sequence[str] = (), *, needed: bool = True, fitted: Sequence[str] | None = None
) -> tuple[Any, Any, list[str] | None, dict[str, Any]]:  # fmt: skip
    """Inputs, labels and the names of the columns, from parquet, CSV, or an .npz with X and y (which names no columns).

    Last come the columns named in `by`, as they are, and where they are `needed`; those with text are then not inputs. With
    `fitted`, the names that a model asks for (none: all there are), inputs are a data frame where they are not all numbers.
    """
    import numpy as np

    if path.endswith(".npz"):
        if by and needed:
            raise InvalidValue(f"{path!r} names no columns, so there is no {by[0]!r} to group by; give parquet or CSV.")
        return (*_arrays(_there(path, "a file of rows")), None, {})
    from discreet.cli.files import read_table
    from discreet.core.columns import numeric

    table = read_table(path)
    if target not in table:
        raise InvalidValue(f"{path!r} has no column {target!r}; say which holds the labels with --target-column.")
    lacking = [name for name in by if name not in table]
    if lacking and needed:
        raise InvalidValue(f"{path!r} has no column {lacking[0]!r} to group by; it has {', '.join(list(table)[:20])}.")
    given = [name for name in table if name != target and not INDEX.fullmatch(name)]
    names = [name for name in given if name not in by or numeric(table[name]) or name in (fitted or ())]
    texts = [name for name in names if not numeric(table[name])]
    if texts and fitted is not None:
        return _frame(table, names), table[target], names, {name: table[name] for name in by if name in table}
    if texts or not names:
        what = _no_numbers(path, texts[0], table[texts[0]]) if texts else f"{path!r} has no column but the labels."
        raise InvalidValue(f"A model is asked about numbers; {what}")
    return (
        _narrow(np.stack([table[name] for name in names], 1)),
        table[target],
        names,
        {name: table[name] for name in by if name in table},
    )


def _frame(table: dict[str, Any], names: list[str]) -> Any:
    try:
        import pandas  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("pandas", "sklearn", "A table with text or categories") from None
    return pandas.DataFrame({name: table[name] for name in names})


def _no_numbers(path: str, name: str, values: Any) -> str:
    """Why a column is none of numbers: cells are empty, or it holds text."""
    cells = values.tolist()
    empty = sum(each is None for each in cells)
    try:
        [float(each) for each in cells if each is not None]
    except (TypeError, ValueError):
        return (
            f"column {name!r} of {path!r} holds text. Give it as numbers, a scikit-learn pipeline that was fitted on columns "
            "by name and takes text, or name it in --group-by: then the model is not given it."
        )
    return (
        f"column {name!r} of {path!r} has {empty} empty cells. Fill them in as the model's own preparation does, or leave "
        "those rows out."
    )


def _narrow(X: Any) -> Any:
    """As 32-bit floats; as they are where that would make different numbers the same (times, amounts, numbers of people)."""
    import numpy as np

    with np.errstate(over="ignore"):
        return X.astype(np.float64 if (np.abs(X) >= WHOLE).any() else np.float32)


def _arrays(file: Path) -> tuple[Any, Any]:
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as found:
            lacking = [name for name in ("X", "y") if name not in found]
            if lacking:
                raise InvalidValue(f"{str(file)!r} must hold arrays X and y; it lacks {' and '.join(lacking)}.")
            X, y = found["X"], found["y"]
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"{str(file)!r} cannot be read as .npz; write it with numpy.savez(file, X=…, y=…).") from None
    return _narrow(X), y


def in_order(names: list[str] | None, X: Any, wanted: list[str] | None, what: str, whose: str = "members do not") -> Any:
    """Columns in the order of another file, or of those that the model was fitted on; refused where others are."""
    if names is None or wanted is None or names == wanted:
        return X
    lacking, extra = [each for each in wanted if each not in names], [each for each in names if each not in wanted]
    if lacking or extra:
        told = [f"lack {each!r}" for each in lacking[:1]] + [f"have {each!r}, which {whose}" for each in extra[:1]]
        raise InvalidValue(f"The {what} {' and '.join(told)} ({len(lacking)} columns lacking, {len(extra)} too many).")
    return X[wanted] if hasattr(X, "columns") else X[:, [names.index(each) for each in wanted]]


def numbered(y: Any, model: Any, what: str) -> Any:
    """Labels as places among the model's classes, where it names them; else whole numbers from 0 are needed."""
    import numpy as np

    from discreet.models import predict

    y = np.asarray(y)
    classes = getattr(model, "classes_", None)
    if classes is not None:
        return predict.class_numbers(y, classes, what)
    if y.dtype.kind == "f" and np.array_equal(y, np.rint(y)):
        y = y.astype(np.int64)
    if y.dtype.kind not in "iu":
        raise InvalidValue(
            f"Labels of the {what} must be whole numbers from 0, as the model counts its classes; they are {_kind(y)}. Write "
            "the number of each row's class there; what a regression predicts is no class, and is not attacked here."
        )
    return y


def classes_of(y: Any) -> Any:
    """Labels of any kind as numbers of classes from 0, in order; refused where they are no classes."""
    import numpy as np

    y = np.asarray(y)
    lacking = y.dtype.kind == "O" and any(each is None for each in y.tolist())
    if lacking or (y.dtype.kind == "f" and not np.array_equal(y, np.rint(y))):
        raise InvalidValue(
            f"Labels of the data must be classes: whole numbers or names; they are {_kind(y)}. What a regression predicts is "
            "no class, and is not audited here."
        )
    return np.unique(y.astype(str) if y.dtype.kind == "O" else y, return_inverse=True)[1].astype(np.int64)


def _kind(y: Any) -> str:
    import numpy as np

    cells = y.tolist()
    empty = sum(each is None or each != each for each in cells)
    if empty:
        return f"empty in {empty} of {len(cells)} rows"
    return "numbers with fractions, or infinite" if np.asarray(y).dtype.kind == "f" else "text"


def read_model(path: str, recipe: Recipe | None, *, trust_pickle: bool, device: str) -> Any:
    """The model under attack: weights for what the recipe builds, ONNX, or a scikit-learn model from a trusted pickle."""
    file = _there(path, "a .safetensors file, a state dict, an .onnx file, or a scikit-learn model")
    if file.suffix in PICKLES:
        if not trust_pickle:
            raise InvalidValue(
                f"{path!r} is a pickle, which runs whatever its maker put in as it is read. Say --trust-pickle if you made it."
            )
        return _unpickled(file)
    if file.suffix == ".onnx":
        return Onnx(file)
    if recipe is None or recipe.kind != "torch":
        raise InvalidValue(
            f"{path!r} holds weights; say what they belong to with --recipe, a file whose recipe builds the module."
        )
    model = recipe.build()
    weights = _weights(file)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, AttributeError, TypeError) as error:
        told = " ".join(str(error).split())[:300]
        raise InvalidValue(f"The weights of {path!r} do not fit what the recipe builds: {told}") from None
    return model.to(device).eval()


class Onnx:
    """A model in ONNX, asked for its scores: logits or probabilities."""

    def __init__(self, file: Path) -> None:
        try:
            import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise MissingExtra("onnxruntime", "onnx", "Reading ONNX models") from None
        try:
            self._session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        except Exception as error:
            raise InvalidValue(f"{str(file)!r} cannot be read as ONNX: {' '.join(str(error).split())[:200]}") from None
        given = self._session.get_inputs()
        if len(given) != 1:
            raise InvalidValue(f"{str(file)!r} has {len(given)} inputs; a model under attack is given one table of numbers.")
        self._input = given[0].name

    def __call__(self, X: Any) -> Any:
        import numpy as np

        try:
            found = self._session.run(None, {self._input: np.asarray(X, np.float32)})
        except Exception as error:
            raise InvalidValue(f"The model cannot be asked about these rows: {' '.join(str(error).split())[:200]}") from None
        tables = [each for each in found if isinstance(each, np.ndarray) and each.ndim == 2 and each.dtype.kind == "f"]
        if not tables:
            raise InvalidValue("The model gives no table of scores, one column per class; export it with its probabilities.")
        return np.asarray(tables[-1], np.float64)


def _unpickled(file: Path) -> Any:
    try:
        import joblib  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("joblib", "sklearn", "Reading scikit-learn models") from None
    try:
        return joblib.load(file)
    except Exception as error:
        raise InvalidValue(f"{str(file)!r} cannot be read by joblib: {type(error).__name__}: {str(error)[:200]}") from error


def _weights(file: Path) -> dict[str, Any]:
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(file))
        import torch

        found = torch.load(file, map_location="cpu", weights_only=True)
    except ImportError:
        raise MissingExtra("torch", "torch", "Reading the weights of a model") from None
    except Exception as error:
        raise InvalidValue(
            f"{str(file)!r} holds something other than weights, or is damaged ({type(error).__name__}); save it with "
            "safetensors.torch.save_file(model.state_dict(), …) or torch.save(model.state_dict(), …)."
        ) from None
    if not isinstance(found, dict):
        raise InvalidValue(f"{str(file)!r} holds a {type(found).__name__}, not a state dict; save model.state_dict().")
    return found


def usable(device: str) -> str:
    """A device that is there."""
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise InvalidValue(f"This machine offers no {device!r} device to torch; use --device cpu.")
    return device


@contextmanager
def told(count: int, label: str) -> Iterator[Callable[[int, int], None]]:
    """Something to call with (done, count): a bar with the time left on a terminal, a line now and then elsewhere."""
    began = last = time.monotonic()

    def line(done: int, _: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < count and now - last >= SECONDS:
            last = now
            talk(f"{label}: {done} of {count}, about {(now - began) / done * (count - done):.0f} s left")

    with progress(count, label) as bar:
        yield bar or line


def _there(path: str, wanted: str) -> Path:
    file = Path(path)
    if not file.is_file():
        raise InvalidValue(f"There is no file {path!r}; give {wanted}.")
    return file
