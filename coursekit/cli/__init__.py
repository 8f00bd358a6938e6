"""The command line: ``coursekit``, or ``python -m coursekit``.

A command is a module with two functions, ``add_options`` and ``run``; it is
imported when it is asked for.  The options of a model and of a training are
the fields of their configurations; the help of an option is the string under
the field.
"""

import argparse
import importlib
import inspect
import io
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from coursekit.cli.output import FULL, complain, discard_output, keep_streams

INTRO = """\
A transformer to train, to question and to take apart.

In the order in which you will want them:

  coursekit train       learn to write from a text
  coursekit generate    write
  coursekit eval        how surprised is the model by text it has not seen?
  coursekit translate   into another language, line by line
  coursekit info        what a model is made of; what this machine can do
  coursekit finetune    from prompts with their answers
  coursekit quantize    what does it lose with fewer bits per weight?

To read the book in Jupyter:

  coursekit notebooks   write its chapters as notebooks

For the transformer that you build yourself, chapter by chapter:

  coursekit start       begin my_transformer.py, at any chapter
  coursekit step        check it so far, train it, generate from it
  coursekit capstone    the finished file on your own text, with a report

For the exercises of the book, and for those who teach with it:

  coursekit check       check all answers in a chapter or notebook
  coursekit assign      make an assignment: notebooks for students
  coursekit grade       a folder of submissions in, a grade sheet out
  coursekit sheet       the same grades as Canvas or Moodle imports them
  coursekit doctor      what can grading be trusted with on this machine?
  coursekit kit         questions for an exam, slides, wrong answers

Each explains itself: coursekit train --help
"""
EXAMPLES = """\
examples:
  coursekit train --out runs/first --minutes 2
  coursekit generate runs/first --prompt "ROMEO:" --temperature 0.7
  coursekit train my.txt --out runs/mine --tokenizer bpe --n-layers 6

exit codes: 0 done; 1 training stopped (loss not finite, disk full), a line
could not be translated, or the output could not be written; 2 wrong option or
input, said in one line; 130 stopped by Ctrl-C, checkpoint kept
"""

YOUR_FILE = "coursekit_classroom.yourfile"
TEACH = "coursekit_classroom.teach"
# Name: how it is called, and its module, in a newcomer's order.  Behind a
# colon: which of the module's commands it is.
COMMANDS = {
    "train": ("[TEXT] --out RUN [options]", "coursekit.cli.train"),
    "generate": ("RUN [options]", "coursekit.cli.generate"),
    "eval": ("RUN [TEXT] [options]", "coursekit.cli.evaluate"),
    "translate": ("MODEL [FILE] [options]", "coursekit.cli.translate"),
    "info": ("[RUN] [--json]", "coursekit.cli.info"),
    "finetune": ("RUN PAIRS --out RUN [options]", "coursekit.cli.finetune"),
    "quantize": ("RUN [TEXT] [options]", "coursekit.cli.quantize"),
    "notebooks": ("[FOLDER]", "coursekit_classroom.notebooks.readers"),
    "start": ("[FILE] [--at K] [--force]", f"{YOUR_FILE}:start"),
    "step": ("[FILE] [--at K] [--steps N]", f"{YOUR_FILE}:step"),
    "capstone": ("[FILE] [TEXT] [options]", f"{YOUR_FILE}.capstone:capstone"),
    "check": ("FILE [--only ID]", "coursekit_classroom.notebooks.checkfile"),
    "assign": ("PAGE ... | --roster CSV [options]", f"{TEACH}.assign"),
    "grade": ("DIR --out CSV [options]", f"{TEACH}.grade"),
    "sheet": ("CSV [--format F] [--roster CSV]", f"{TEACH}.sheet"),
    "doctor": ("[options]", f"{TEACH}.doctor"),
    "kit": ("PART [options]", "coursekit_classroom.kit.command"),
}


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Exit with 2 and one line."""
        hint = f"(see {self.prog} --help)"
        self.exit(2, f"coursekit: error: {message} {hint}\n")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a command line; the module of its command is imported for it."""
    parser = Parser(
        prog="coursekit",
        usage="coursekit COMMAND [options]",
        description=INTRO,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"coursekit {version()}"
    )
    hidden = argparse.SUPPRESS
    parser.add_argument(
        "command", choices=COMMANDS, metavar="COMMAND", help=hidden
    )
    rest = parser.add_argument("words", nargs=argparse.REMAINDER, help=hidden)
    rest.required = False  # not to be named if the command is missing
    args = parser.parse_args(argv)
    usage, path = COMMANDS[args.command]
    path, _, name = path.partition(":")
    module = importlib.import_module(path)
    run = getattr(module, f"run_{name}" if name else "run")
    prog = f"coursekit {args.command}"
    command = Parser(
        prog=prog, usage=f"{prog} {usage}", description=inspect.getdoc(run)
    )
    command.set_defaults(command=args.command, function=run)
    getattr(module, f"{name}_options" if name else "add_options")(command)
    return command.parse_args(args.words)


def version() -> str:
    """The version of the installed package."""
    try:
        return metadata.version("executable-transformer")
    except metadata.PackageNotFoundError:
        return "not installed"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after ``coursekit``; by default the process's own.

    Returns:
        The exit code: 0 done, 1 training stopped, a line not translated or
        not written, 2 bad input, 130 Ctrl-C.
    """
    keep_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # its encoding may be ascii
        sys.stdout.reconfigure(errors="backslashreplace")
    args = argparse.Namespace()
    try:
        args = parse(argv)
        code = int(args.function(args))
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure is caught
        return code
    except BrokenPipeError:  # `coursekit generate ... | head` has enough
        discard_output()
        return 0
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except (ValueError, OSError, RuntimeError) as error:
        return explain(error, args)


def explain(error: Exception, args: argparse.Namespace) -> int:
    """One line for an error that a user can do something about.

    Raises:
        Exception: the error itself, if it is none of these.
    """
    import torch  # here, so that --help need not wait for it

    from coursekit.checks import TrainingDiverged
    from coursekit.distributed import ProcessLost
    from coursekit.weights import SaveError

    stopped = (TrainingDiverged, SaveError, ProcessLost)
    if isinstance(error, (*stopped, torch.OutOfMemoryError)):
        return complain(f"{error} {what_is_kept(args)}", 1)
    if isinstance(error, (ValueError, OSError)):
        if getattr(error, "errno", None) not in FULL:
            return complain(error, 2)
        discard_output()  # what is left of it would fail again
        rule = "there must be room for the output"
        return complain(f"{rule}: got {error}. Make room, and repeat.", 1)
    if "can't allocate memory" in str(error):  # torch's words for a CPU's
        asked = "the sizes must fit into memory"
        return complain(f"{asked}: got {error}. Lower them.", 2)
    raise error


def what_is_kept(args: argparse.Namespace) -> str:
    """Say what a stopped run has left: its last checkpoint, or nothing."""
    if args.command != "train":
        return ""
    if Path(args.out, "checkpoint.safetensors").exists():
        return "The last checkpoint is kept; --resume goes on from it."
    return (
        "There is no checkpoint yet; --resume begins with the same settings, "
        "another --out with others."
    )
