"""The command line: one file per command, each loaded when it is used.

Data goes to stdout, talk and progress to stderr. Exit codes: 0 fine, 1 a check failed, 2 wrong use, 3 a claim was refuted.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from discreet import __version__

FINE, CHECK_FAILED, WRONG_USE, REFUTED = 0, 1, 2, 3
_BROKEN_PIPE, _OUR_FAULT = 141, 70  # as a shell reports SIGPIPE, and EX_SOFTWARE

COMMANDS = {
    "account": "What a mechanism gives away at most: epsilon, power, belief.",
    "attack": "What a finished table, a list of answers or a model gives away.",
    "audit": "Claims against evidence; or a training recipe, audited in one run.",
    "crypto": "Encrypted rows scored by a machine that cannot read them.",
    "demo": "A model that leaks, a private one, a synthetic table, SQL, one budget, one report.",
    "federate": "Train a private classifier over the clients in a table, round by round.",
    "fit": "A private logistic, SVM or regression model of a table, in a second.",
    "gate": "Do releases keep to a policy? For CI: exit codes, JUnit, SARIF.",
    "keys": "Sign releases and ledgers, and see who signed them.",
    "ledger": "Budgets: open, show, share, raise, renew, verify.",
    "pate": "Labels for public rows, by teachers that vote in private.",
    "predict": "Classes or values of new rows, by a model that train or fit wrote.",
    "query": "Ask private SQL: an answer with error bars, charged to a budget.",
    "recommend": "A private recommender of ratings, and its advice to one user.",
    "report": "Releases as one page to read and sign: HTML, PDF, Markdown, JSON.",
    "sample": "More rows of a synthetic table, from the model that synth kept.",
    "serve": "The web app: budgets, releases, a console, attacks, for a team.",
    "show": "What a release says of itself.",
    "synth": "A synthetic table in place of a private one, charged to a budget.",
    "train": "Train a private classifier on a table.",
}


class Commands(click.Group):
    """Loads a command when it is asked for, and turns every error into one paragraph."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        from importlib import import_module

        from discreet.cli.kept import keeping_inputs

        return keeping_inputs(import_module(f"discreet.cli.{name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        from discreet.errors import DiscreetError

        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            _hush()
            ctx.exit(_BROKEN_PIPE)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except DiscreetError as error:
            from discreet.cli.spoken import as_options, options_of

            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            message = " ".join([str(error), *getattr(error, "__notes__", ())])
            told = as_options(message, frozenset(options_of(command, ctx)))
            raise _Told(told, WRONG_USE, ctx.params["debug"]) from error
        except OSError as error:
            what = "" if error.filename is None else f" {error.filename}"
            raise _Told(f"The system refused{what}: {error.strerror or error}.", CHECK_FAILED, ctx.params["debug"]) from error
        except UnicodeError as error:  # bytes of an argument or of a file that are no text
            what = "An argument or a file is not text in UTF-8, which is all that is read as text here."
            raise _Told(what, WRONG_USE, ctx.params["debug"]) from error
        except Exception as error:
            told = f"This is a fault in discreet ({type(error).__name__}: {str(error)[:300]})."
            told = " ".join([told, "Report it with what discreet --debug shows.", *getattr(error, "__notes__", ())])
            raise _Told(told, _OUR_FAULT, ctx.params["debug"]) from error


class _Told(click.ClickException):
    """An error as the user sees it: one paragraph, and with --debug where it came from."""

    def __init__(self, message: str, exit_code: int, debug: bool) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]
        self._debug = debug

    def show(self, file: Any = None) -> None:
        if self._debug and self.__cause__ is not None:
            import traceback

            traceback.print_exception(self.__cause__)
        super().show(file)

    def format_message(self) -> str:
        from discreet.cli.output import wrapped

        return wrapped(f"Error: {self.message}").removeprefix("Error: ")


def _hush() -> None:
    """Nobody reads stdout any more: let Python's last flush go nowhere."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="discreet", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def app(debug: bool) -> None:
    """Privacy with both sides shown: what is proven, and what attacks reached.

    Exit codes: 0 fine, 1 a check failed, 2 wrong use, 3 a claim was refuted.
    """


def main() -> None:
    """Where the `discreet` program starts."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an old terminal shows \u03b5, and no traceback
    app(prog_name="discreet")
