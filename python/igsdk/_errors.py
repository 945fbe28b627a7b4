# SPDX-License-Identifier: Apache-2.0
"""The error tree: every error names its cause and its remedy, and has an exit code.

IgsdkError
├── UsageError            2   an argument or option that makes no sense
├── PermissionMissing     3   not root, or a capability is missing
├── KernelUnsupported     4   no BTF, no uprobes, kernel too old
├── ExtensionMissing      5   the native extension or the BPF object is not installed
├── LibraryUnusable       6   a libcuda that is not ELF, of another architecture, without symbols
├── ProfileUnreadable     7   a profile file that is cut short or of another tool
├── OutputUnwritable      8   the output folder is missing, full or read-only
├── TargetUnavailable     9   a target that cannot be reached or is not known
├── GadgetInvalid        10   a gadget that does not compile, does not fit its metadata, or us
├── ImageUnreadable      11   an image that is none, is cut short, or whose bytes changed
├── RegistryRefused      12   a registry that says no: password, name, rights
├── RunRefused           13   a daemon that refuses to run a gadget, or ends its run
├── AnswerInvalid        14   a daemon's answer that makes no sense, or is not a daemon's
├── PushRefused          15   a profile server that says no, or keeps nothing
├── ListenFailed         16   a place where `igsdk agent` can't listen: taken, or not for us
├── StartFailed         125   we failed before the command was started
├── NotExecutable       126   the command exists and cannot be executed
└── CommandNotFound     127   the command does not exist
"""

from __future__ import annotations

from typing import ClassVar


class IgsdkError(Exception):
    """Base of all errors that igsdk raises on purpose.

    Args:
        cause: one sentence that says what is wrong.
        remedy: one sentence that says what to do about it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause, remedy)
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}"


class UsageError(IgsdkError):
    exit_code = 2


class PermissionMissing(IgsdkError):
    exit_code = 3


class KernelUnsupported(IgsdkError):
    exit_code = 4


class ExtensionMissing(IgsdkError):
    exit_code = 5


class LibraryUnusable(IgsdkError):
    exit_code = 6


class ProfileUnreadable(IgsdkError):
    exit_code = 7


class OutputUnwritable(IgsdkError):
    exit_code = 8


class TargetUnavailable(IgsdkError):
    exit_code = 9


class GadgetInvalid(IgsdkError):
    exit_code = 10


class ImageUnreadable(IgsdkError):
    exit_code = 11


class RegistryRefused(IgsdkError):
    exit_code = 12


class RunRefused(IgsdkError):
    exit_code = 13


class AnswerInvalid(IgsdkError):
    exit_code = 14


class PushRefused(IgsdkError):
    exit_code = 15


class ListenFailed(IgsdkError):
    exit_code = 16


class StartFailed(IgsdkError):
    exit_code = 125


class NotExecutable(StartFailed):
    exit_code = 126


class CommandNotFound(StartFailed):
    exit_code = 127
