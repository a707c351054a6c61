"""rollpin: deploys LLM inference containers to GPU hosts, and can always take the deploy back."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rollpin")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"
