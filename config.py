"""pyinfra reads this first. Signals end a run with a status that is not 0 from here on."""

from rollpin import report, signals

signals.install()
report.end_badly_when_nothing_was_looked_at()

# Seconds to reach a host; what rollpin does there has deadlines of its own.
CONNECT_TIMEOUT = 10
