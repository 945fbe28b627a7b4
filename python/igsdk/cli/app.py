# SPDX-License-Identifier: Apache-2.0
"""The verbs, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import importlib
import signal
from typing import TYPE_CHECKING, Any

import click

from igsdk._errors import IgsdkError, UsageError
from igsdk._version import __version__
from igsdk.cli import output
from igsdk.cli.ending import leave

if TYPE_CHECKING:
    from collections.abc import Sequence

    from igsdk.cli.ending import Ending

#: the verbs in groups, as the help shows them
_GROUPS = {
    "Memory of GPUs": ("record", "report", "events", "forward"),
    "Any gadget, on a daemon": ("run", "instances"),
    "The daemons of nodes": ("agent", "nodes"),
    "Make gadgets": ("gadget",),
    "When something is wrong": ("doctor",),
}
_VERBS = tuple(verb for verbs in _GROUPS.values() for verb in verbs)
_INTERRUPTED = 128 + signal.SIGINT

_EXIT_CODES = """\b
Exit codes:
    0  done
    1  a mistake in igsdk itself; please report it
    2  an option or argument makes no sense
    3  not root, or a capability, group or right is missing
    4  the kernel lacks something
    5  the native extension, the BPF object or an extra is not installed
    6  a libcuda that cannot be traced
    7  a profile that cannot be read
    8  an output that cannot be written
    9  a target, a registry or a server that cannot be reached
   10  a gadget that does not compile, does not fit, or can't run here
   11  an image that cannot be read
   12  a registry that refuses
   13  a daemon that refuses to run a gadget, or ends its run
   14  a daemon's answer that makes no sense
   15  a profile server that refuses, or keeps nothing
   16  a place where the agent can't listen
  130  ended by ctrl-C before there was anything to write

\b
With `-- CMD`, igsdk ends as CMD ended, with its code or by its signal. Only
what went wrong before its start has codes of its own:
  125  igsdk could not start it
  126  it is there and cannot be executed
  127  there is no such command
"""


class Verbs(click.Group):
    """Verbs by name; each one's module is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_VERBS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"igsdk.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _VERBS))
        for title, names in _GROUPS.items():
            verbs = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(width), verb.get_short_help_str(100))
                        for name, verb in verbs
                        if verb
                    ]
                )


@click.group(
    cls=Verbs,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.version_option(__version__, message="igsdk %(version)s")
@click.pass_context
def igsdk(context: click.Context) -> int:
    """Shows which functions hold the memory of your GPU.

    Results go to standard output, everything else to standard error. Where CMD is run,
    standard output belongs to it.
    """
    if context.invoked_subcommand is None:
        output.say(context.get_help().rstrip(), prefix="")
        return UsageError.exit_code
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and ends this process; the entry point of `igsdk`."""
    output.prepare()
    ending = run(arguments)
    output.clear_progress()
    leave(ending)


def run(arguments: Sequence[str] | None = None) -> Ending:
    """Runs one verb.

    Returns:
        How to end: an exit code, or how the user's command ended.
    """
    try:
        ending = _invoke(arguments)
        output.flush()
    except output.OutputClosed:
        return 0
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except click.ClickException as error:
        return _complain(error)
    except IgsdkError as error:
        output.complain(error)
        return error.exit_code
    except Exception as error:
        output.report_mistake(error)
        return IgsdkError.exit_code
    return ending


def _invoke(arguments: Sequence[str] | None) -> Ending:
    try:
        ending: Any = igsdk.main(arguments, prog_name="igsdk", standalone_mode=False)
    except SystemExit as error:
        # click ends so for a pipe that nobody reads, and for shell completion
        return error.code if isinstance(error.code, int) else 0
    return 0 if ending is None else ending


def _complain(error: click.ClickException) -> int:
    """click's own message, with the usage line where it has one."""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption | click.BadParameter | click.UsageError) and context:
        output.say(f"{context.get_usage()}\n", prefix="")
        output.complain(UsageError(error.format_message(), f"See `{context.command_path} --help`."))
    else:
        output.say(error.format_message())
    return error.exit_code
