"""The process between scheduler and server: passes on what the scheduler says.

Kill it and the port accepts while nothing is ever answered, as on a real engine.
"""

from __future__ import annotations

from . import child


def main() -> None:
    child.die_with_parent()
    lines = child.Lines(0)
    while not lines.closed:
        for line in lines.read():
            child.send(1, line)


if __name__ == "__main__":
    main()
