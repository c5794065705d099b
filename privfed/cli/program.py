"""Commands whose work is imported when they run, and their errors and warnings in terms of their options."""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import click

from privfed.cli.settings import Setting, of_algorithm, own_settings
from privfed.core.names import Registry, imported
from privfed.errors import ArgumentError, PrivFedError
from privfed.estimators.registry import DECLARED, OWN, SHORT, TRAINED

Decorator = Callable[[Any], Any]
_BAD_INPUT, _STOPPED = 2, 130


def existing(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Return a path at which something is: a mistyped one ends a command before it imports anything."""
    if path is not None and str(path) != "-" and not path.exists():
        raise click.ClickException(f"{path} does not exist; check the path.")
    return path


def stacked(*options: Decorator, heading: str = "") -> Decorator:
    """Return one decorator for several options, in their order, which help shows under a heading."""

    def decorate(command: Any) -> Any:
        before = len(vars(command).get("__click_params__", ()))
        for option in reversed(options):
            command = option(command)
        for one in command.__click_params__[before:] if heading else ():
            _HEADINGS.setdefault(one, heading)
        return command

    return decorate


_HEADINGS: WeakKeyDictionary[click.Parameter, str] = WeakKeyDictionary()
"""Options -> the heading of help that they stand under."""

CONFIG = "--config"
"""Option of commands whose further options may stand in a file."""


class Registered(click.ParamType):  # type: ignore[type-arg]  # Generic since 8.4 alone.
    """Accepts a registered name, or "module:Name", which is imported because a person typed it.

    Args:
        place: "module:Name" of the registry, which is imported when a name is looked up.
        shown: privfed's own names for help and errors; by default all.
        also: place of a registry whose names are understood too.
    """

    name = "name"

    def __init__(self, place: str, shown: tuple[str, ...] = (), also: str = "") -> None:
        self._places, self._shown = (place, also) if also else (place,), shown

    @property
    def _registries(self) -> list[Registry[Any]]:
        return [imported(place) for place in self._places]  # type: ignore[misc]

    @property
    def names(self) -> tuple[str, ...]:
        """Names that errors list: those shown, and those that packages and users added."""
        first, *others = self._registries
        own = (*self._shown, *first.added()) if self._shown else first.names()
        return (*own, *(name for one in others for name in one.added()))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the names as help shows them; where the registry takes long to import, the text has them."""
        return f"[{'|'.join(self.names)}|MODULE:NAME]" if self._shown else "NAME|MODULE:NAME"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that the name is known, and return it unchanged."""
        registries = self._registries
        if any(value in one for one in registries):
            return value
        try:
            registries[0].resolve(value)
        except ArgumentError as error:
            unknown = f"{value!r} is none of {', '.join(self.names)}."
            self.fail(str(error) if ":" in value else unknown, param, ctx)
        return value


ALGORITHM = Registered("privfed.estimators.registry:ESTIMATORS", (*SHORT, *TRAINED))
"""The type of the option --algorithm."""

CLUSTERING = Registered("privfed.estimators.registry:ESTIMATORS", SHORT)
"""The same where rows alone are clustered."""


RARE = (
    *("as_json", "budget", "classes", "clip", "columns", "config", "curve", "group_size", "id", "max_rows"),
    *(
        "mechanism",
        "metrics",
        "model",
        "most_rows",
        "noise",
        "picture",
        "plan",
        "purpose",
        "quiet",
        "rows_per_user",
    ),
    *("random_state", "rule", "separator", "share", "spare"),
)
"""Options that a long help leaves out, until an algorithm or an attack is named; it says where they are."""


class Naming(click.Option):
    """Names things whose parameters are options of the command, too."""

    def settings(self, named: str) -> list[Setting]:
        """Return the options of what is named."""
        raise NotImplementedError


class Command(click.Command):
    """A command whose work is imported when it is invoked, so that help and errors of use are quick.

    Where it has the option --algorithm, it has the options of that algorithm's parameters, too.

    Args:
        place: "module:function" of its work, which is called with the options.
        **settings: as for `click.Command`.
    """

    def __init__(self, *args: Any, place: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._place = place

    def invoke(self, ctx: click.Context) -> Any:
        """Import the work and do it; errors of the library name this command's options."""
        with ctx, _in_options():
            work: Any = imported(self._place)
            return ctx.invoke(work, **ctx.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read a file of options, the algorithm and attacks first: the other options depend on them."""
        with _in_options():
            args = self._with_file(args)
        for word, following in zip(args, [*args[1:], ""], strict=False):
            name, inline, value = word.partition("=")
            if name in ("--algorithm", "--attack"):
                ctx.meta[name[2:]] = value if inline else following
        with _in_options():
            return super().parse_args(ctx, args)

    def _with_file(self, args: list[str]) -> list[str]:
        """Return the words with those of the file that `--config` names before them, which they override."""
        places = [i for i, word in enumerate(args) if word.partition("=")[0] == CONFIG]
        if not places or all(CONFIG not in one.opts for one in self.params):
            return args
        first = places[0]
        inline = "=" in args[first]
        path = args[first].partition("=")[2] if inline else "".join(args[first + 1 : first + 2])
        return [*_words_of(Path(path)), *args[:first], *args[first + 2 - inline :]]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options and those of the algorithm, or of the attacks that are named."""
        declared = super().get_params(ctx)
        for other in declared:
            if isinstance(other, Naming):
                taken = {word for one in declared for word in one.opts}
                named = other.settings(ctx.meta.get(other.opts[0].removeprefix("--"), ""))
                return [*declared, *(one for one in named if taken.isdisjoint(one.opts))]
        if all(one.type not in (ALGORITHM, CLUSTERING) for one in declared):
            return declared
        algorithm = ctx.meta.get("algorithm", "dwf")
        # Those of privfed's other algorithms are known, too, so that an error can say whose they are not.
        further = () if algorithm in DECLARED else of_algorithm(algorithm)
        return [*declared, *{one.name: one for one in (*own_settings(), *further)}.values()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by their headings, then those of what is named; else the usual ones."""
        sections = dict[str, list[click.Option]]()
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        algorithm, attacks = ctx.meta.get("algorithm", ""), ctx.meta.get("attack", "")
        named = (
            [*of_algorithm(algorithm)] if algorithm else [one for one in options if isinstance(one, Setting)]
        )
        rare = [one.opts[0] for one in options if one.name in RARE]
        brief = not (algorithm or attacks) and len(rare) > 5  # A help with few of these is short.
        if brief:
            options = [one for one in options if not isinstance(one, Setting) and one.name not in RARE]
        for one in (one for one in options if not isinstance(one, Setting)):
            sections.setdefault(_HEADINGS.get(one, "Options"), []).append(one)
        if any(isinstance(one, Setting) for one in options):
            sections[f"Options of {attacks or algorithm}"] = [*named]
        for heading in sorted(sections, key=lambda name: name != "Options"):
            records = [
                record for one in sections[heading] if (record := one.get_help_record(ctx)) is not None
            ]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
        if brief:
            formatter.write(
                "\n"
                + click.wrap_text(
                    next(
                        (
                            f"{ctx.command_path} {one.opts[0]} NAME --help shows all options, NAME's too."
                            for one in options
                            if one.type in (ALGORITHM, CLUSTERING) or isinstance(one, Naming)
                        ),
                        f"Rarely needed: {', '.join(rare)}. `privfed fit --algorithm dp --help` has them.",
                    ),
                    formatter.width,
                )
                + "\n"
            )


def _words_of(path: Path) -> list[str]:
    """Return what a TOML file says of options as words of a command line.

    Raises:
        ArgumentError: it cannot be read, or a value is no text, number, truth value or list of these.
    """
    # Imported here, as few commands name a file of options.
    import tomllib

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be read as a file of options ({type(error).__name__}).") from None
    words = list[str]()
    for name, value in found.items():
        option = f"--{name.replace('_', '-')}"
        if option == "--config":
            raise ArgumentError(f"{path} names another file of options; write its options here.")
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str | int | float) for one in several):
            raise ArgumentError(
                f"{path}: {name} must be a text, a number, true or false, or a list of these."
            )
        if isinstance(value, bool):
            words += [option] if value else [f"--no-{option[2:]}"] if option == "--picture" else []
        else:
            words.append(f"{option}={','.join(map(str, several))}")
    return words


def command(
    group: click.Group | None, place: str, short_help: str, *options: Decorator
) -> Callable[[Callable[[], None]], Command]:
    """Return a decorator that makes a command of a function without a body, whose docstring is its help.

    Args:
        group: to add it to; None where the program adds it.
        place: "module:function" of its work.
        short_help: one line for the list of commands.
        *options: its arguments and options, in their order.
    """

    def decorate(described: Callable[[], None]) -> Command:
        name = described.__name__.rstrip("_").replace("_", "-")
        make = click.command(name, cls=Command, short_help=short_help, place=place)
        made: Command = make(stacked(*options)(described))
        if group is not None:
            group.add_command(made)
        return made

    return decorate


PARTS = {
    "domain": "--low and --high",
    "privacy": "--epsilon, --delta, --unit and --neighbours",
    "client_names": "--clients",
    "n_classes": "--classes",
    "range": "--min-k and --max-k",
    "order": "privfed budget new --order",
}
"""Parameters that are objects in Python -> the options that describe them."""

CALLED = {OWN[short].partition(":")[2]: f"--algorithm {short}" for short in SHORT if short != "lloyd"}
"""Names of estimators' classes in messages -> the option that takes them."""

_ASSIGNED = re.compile(r"""(?<![\w.\-/'"])([a-z]\w*)=(\.\.\.|"[\w.+-]+"|'[\w.+-]+'|(?=[\s,.;)]|$))?""")
"""`name=value` in a message: a plain word in quotes, dots for any value, nothing, or whatever follows."""

_WORDS_OF_FILES = ("tradeoff", "compare")
"""Commands that read studies, whose files have the parameters' own names."""


def in_options(text: str, parameters: Iterable[str] = ()) -> str:
    """Return a message with the options of the running command for the parameters of the library.

    Args:
        text: in which a parameter with a value is `name=value`; what follows "in Python" stays.
        parameters: names that stand in it without a value (`PrivFedError.parameters`).
    """
    context = click.get_current_context(silent=True)
    if context is None or context.command.name in _WORDS_OF_FILES:
        return text
    options = _spelled(context)
    text, *python = re.split(r"(?=\bin Python\b)", " ".join(text.split()), maxsplit=1, flags=re.IGNORECASE)
    for name in parameters:
        text = re.sub(rf"(?<![\w.-]){name}(?![\w=])", options.get(name, name), text)

    def option(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        if value is None:
            return f"{options[name]} "
        word = "" if value == "..." else value.strip("'").strip('"')
        return f"{options[name]} {word}".rstrip()

    # An option says by itself what the attacker knows.
    text = re.sub(r"\bPrior\((--[a-z-]+)\)", r"\1", _ASSIGNED.sub(option, text))
    text = re.sub(rf"(?<![\w./'])({'|'.join(CALLED)})(?![\w/']|\.\w)", lambda found: CALLED[found[0]], text)
    return re.sub(r"\b([a-z]+)\((--[^()]*)\)", r"\1 with \2", text) + "".join(python)


def _spelled(context: click.Context) -> dict[str, str]:
    """Return for each parameter the option that sets it here, or in `fit`, which begins what others read."""
    root = context.find_root().command
    fit = root.get_command(context, "fit") if isinstance(root, click.Group) else None
    both = [one for command in (fit, context.command) if command for one in command.get_params(context)]
    return PARTS | {str(one.name): max(one.opts, key=len) for one in both if isinstance(one, click.Option)}


@contextmanager
def _in_options() -> Iterator[None]:
    """Turn errors of the library into errors of the command line."""
    try:
        yield
    except PrivFedError as error:
        # Notes, such as a claim that still holds, belong to the message.
        shown = [in_options(str(error), error.parameters), *getattr(error, "__notes__", [])]
        raise click.ClickException(" ".join(shown)) from error


COMMANDS: Registry[click.Command] = Registry(
    "command",
    "privfed.commands",
    {
        "attack": "privfed.attacks.commands.main:attack",
        "audit": "privfed.attacks.commands.main:audit",
        "check": "privfed.tables.commands.main:check",
        "compare": "privfed.experiments.commands.main:compare",
        "flower": "privfed.nodes.commands.main:flower",
        "journal": "privfed.nodes.commands.main:journal",
        "keys": "privfed.nodes.commands.main:keys",
        "profile": "privfed.tables.commands.main:profile",
        "schema": "privfed.tables.commands.main:schema",
        "stability": "privfed.tables.commands.main:stability",
        "survival": "privfed.tables.commands.main:survival",
        "tradeoff": "privfed.experiments.commands.main:tradeoff",
    },
)
"""Commands of parts outside the core. Packages add theirs by entry points of `privfed.commands`."""


class Program(click.Group):
    """Groups the commands; prints errors as one line on stderr, with exit code 2, or 130 if stopped."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the core's commands and of those of other parts, in alphabetical order."""
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None where there is none: help lists no command that cannot be imported."""
        own = super().get_command(ctx, cmd_name)
        if own is None and cmd_name in COMMANDS:
            with suppress(ArgumentError):
                return COMMANDS.find(cmd_name)
        return own

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that words begin with; say why one cannot be imported."""
        if args[0] in COMMANDS:
            with _in_options():
                COMMANDS.find(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, context: click.Context) -> Any:
        """Run a command; show each warning once, and errors of the library, in terms of its options."""
        written = set[str]()

        def tell(message: Warning | str, *_: Any, **__: Any) -> None:
            text = in_options(str(message))
            if text not in written:
                written.add(text)
                click.echo(f"privfed: warning: {text}", err=True)

        with warnings.catch_warnings():
            warnings.showwarning = tell
            return super().invoke(context)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command line."""
        # A process of one command makes many objects while it imports, and drops few.
        gc.set_threshold(100_000)
        # Pictures go to files, also where a notebook or a desktop names a backend that this Python lacks.
        os.environ["MPLBACKEND"] = "agg"
        try:
            code: Any = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            code = 0
        except click.UsageError as error:
            where = f"; see '{error.ctx.command_path} --help'" if error.ctx else ""
            code = _print_error(error.format_message().rstrip(".") + where)
        except click.ClickException as error:
            code = _print_error(error.format_message())
        except OSError as error:
            name = "" if error.filename is None else f"{error.filename}: "
            full = "; free some space, then give the same command again" if is_full(error) else ""
            code = _print_error(f"{name}{error.strerror or error}{full}")
        except click.Abort:
            click.echo("privfed: stopped", err=True)
            code = _STOPPED
        if standalone_mode:
            sys.exit(code)
        return code


def _print_error(message: str) -> int:
    click.echo(f"privfed: error: {' '.join(message.split())}", err=True)
    return _BAD_INPUT


def is_full(error: OSError) -> bool:
    """Say whether an error means a full disk, an exhausted quota or a file above the system's limit."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
