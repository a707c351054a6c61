"""Every exception rollpin raises.

RollpinError
├── UsageError            what a person typed or wrote is wrong; nothing was done
│   └── ProfileError      a profile or overlay: file, line, what was found, what to do
├── LabError              the lab could not do what was asked
├── HostError             a host answered, and the answer stops us
│   ├── Refused           a plan that must not run; nothing was stopped
│   └── StepFailed        a script on the host ended with a status that is not success
└── Lost                  a host did not answer within the step's deadline
"""

from __future__ import annotations


class RollpinError(Exception):
    """Base of all of ours. The message says what happened, what rollpin does, what you do."""


class UsageError(RollpinError):
    """Wrong input from a person. Nothing was done."""


class ProfileError(UsageError):
    """A profile or overlay that cannot be read. Carries every fault found, one per line."""


class LabError(RollpinError):
    """The lab could not do what was asked."""


class HostError(RollpinError):
    """A host answered, and the answer stops us."""


class Refused(HostError):
    """The plan must not run. Nothing was stopped."""


class StepFailed(HostError):
    """A script on the host ended badly.

    `status` is its exit status, `output` what it said last.
    """

    def __init__(self, message: str, status: int, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


class Lost(RollpinError):
    """No answer from a host within the step's deadline."""
