"""Back to the release before, or to one that is named; guarded like a deploy.

pyinfra inventory/lab.py deploys/rollback.py
pyinfra inventory/lab.py deploys/rollback.py --data service=glm53 --data to=0
"""

from pyinfra import host

from rollpin.operations import release

release.rolled_back(
    name="Roll back",
    service=str(host.data.get("service", "glm53")),
    to=host.data.get("to"),
)
