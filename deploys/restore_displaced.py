"""Gives displaced containers back while the service stays; refused when there is no room.

pyinfra inventory/lab.py deploys/restore_displaced.py --limit lab1 --data container=dsv4_scan
"""

from pyinfra import host

from rollpin.operations import recovery

one = host.data.get("container")
recovery.given_back(name="Give displaced containers back", containers=[str(one)] if one else [])
