"""What stands on a host before rollpin comes: the report's production containers.

glm53-pp4    on every host: serves on port 30000 from the nightly image
dsv4_scan    on the first host: idle, holds the GPUs, restart policy `always`
"""

from __future__ import annotations

import shlex
import time
import urllib.error
import urllib.request
from pathlib import Path

from rollpin.errors import LabError
from rollpin.lab import images, model, network, registry
from rollpin.lab.host import Host

PORT = 30000
PRODUCTION = "glm53-pp4"
IDLE = "dsv4_scan"
SMI = Path(__file__).parent / "nvidia_smi.py"

SERVE = [
    "python3", "-m", "sglang.launch_server",
    "--model-path", f"/data/hf_models/{model.NAME}",
    "--tp-size", "2", "--pp-size", "4",
    "--mem-fraction-static", "0.85", "--max-running-requests", "48",
    "--disable-radix-cache", "--disable-shared-experts-fusion",
    "--moe-runner-backend", "flashinfer_cutlass", "--disable-flashinfer-autotune",
    "--disable-custom-all-reduce", "--chunked-prefill-size", "16384",
    "--host", "0.0.0.0", "--port", str(PORT),  # noqa: S104
    "--json-model-override-args", '{"index_topk_freq": 4}',
]  # fmt: skip
SIT = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); signal.pause()"

# Everything that a test or a person may have left, without touching the nightly image.
CLEAR = r"""
exec 9>/run/lab-furnish.lock
flock 9
systemctl start docker.service
for unit in $(systemctl list-units --all --plain --no-legend 'rollpin-*' | cut -d' ' -f1); do
    systemctl kill --signal=KILL "$unit"; systemctl stop "$unit"
done 2>/dev/null
# the files and the links that start them at boot
left=$(find /etc/systemd/system /run/systemd/system -name 'rollpin-*')
[ -z "$left" ] || rm -rf $left
# also one whose file went since it was loaded
loaded=$(systemctl list-units --all --plain --no-legend 'rollpin-*')
[ -z "$left$loaded" ] || systemctl daemon-reload
systemctl reset-failed
ids=$(docker ps -aq); [ -z "$ids" ] || docker rm -f $ids >/dev/null
ids=$(docker volume ls -q); [ -z "$ids" ] || docker volume rm -f $ids >/dev/null
keep=$(docker image inspect -f '{{.Id}}' "$1" 2>/dev/null)
# twice: the containerd store shows a digest only once the image's tags are gone
for _ in 1 2; do
    docker image ls --no-trunc --format '{{.ID}} {{.Repository}}:{{.Tag}}' |
    while read -r id name; do
        [ "$name" = "$1" ] && continue
        # an image without a tag goes by its id, another tag of the kept one by its name
        case $name in *'<none>'*) [ "$id" = "$keep" ] && continue; name=$id ;; esac
        docker rmi -f "$name" >/dev/null 2>&1
    done
done
# after a prune that was cut short Docker 26.1 with the containerd store lists no image at all
for name in $(ctr -n moby images ls -q 2>/dev/null); do
    [ "$name" = "$1" ] || ctr -n moby images rm "$name" >/dev/null
done
# the third: faults that a test gave to the lab's nvidia-smi
rm -rf /var/lib/rollpin /run/rollpin /run/rollpin-lab /data/glm53_exp
rm -f /var/lib/docker/.rollpin-ballast
find /tmp /root /home/deploy -mindepth 1 -maxdepth 1 -name '*pyinfra*' -exec rm -rf {} +
exit 0
"""


def production(image: str) -> list[str]:
    """The command line that stands the serving container up."""
    return [
        "docker", "run", "-d", "--name", PRODUCTION, "--gpus", "all",
        "--network", "host", "--ipc", "host", "--shm-size", "32g",
        "--restart", "unless-stopped", "-v", "/data/hf_models:/data/hf_models:ro", image, *SERVE,
    ]  # fmt: skip


def idle(image: str) -> list[str]:
    """The command line that stands the idle container up."""
    return [
        "docker", "run", "-d", "--name", IDLE, "--gpus", "all", "--network", "host",
        "--restart", "always", image, "python3", "-c", SIT,
    ]  # fmt: skip


def image(host: Host) -> str:
    """What the production container runs, as its host names it."""
    return f"{host.lab.registry}/{registry.REPOSITORY}:{images.NIGHTLY}"


def furnish(host: Host) -> None:
    """Pull the nightly image, stand the containers up, and wait until production serves."""
    install_smi(host)
    commands = [
        ["docker", "pull", "--quiet", image(host)],
        ["docker", "rm", "-f", PRODUCTION, IDLE],
        production(image(host)),
    ]
    if host.name == host.lab.seats[0].name:
        commands.append(idle(image(host)))
    lines = "".join(f"{shlex.join(command)} >/dev/null\n" for command in commands)
    # the script of a run that was killed goes on without it: one at a time
    host.run(f"set -e\nexec 9>/run/lab-furnish.lock\nflock 9\n{lines}", timeout=120)
    wait_healthy(host)


def install_smi(host: Host) -> bool:
    """Put the lab's nvidia-smi on the host; False (and nothing done) while there is none."""
    if not SMI.exists():
        return False
    script = "umask 022; cat > /usr/local/bin/.smi && chmod 755 /usr/local/bin/.smi && "
    script += "mv /usr/local/bin/.smi /usr/local/bin/nvidia-smi"
    host.run(script, stdin=SMI.read_text())
    return True


def wait_healthy(host: Host, port: int = PORT, deadline: float = 60) -> None:
    """Return once /health on that port says 200; LabError after `deadline` seconds."""
    network.require(host.lab)
    end = time.monotonic() + deadline
    said: object = "no answer"
    while time.monotonic() < end:
        try:
            url = f"http://{host.address}:{port}/health"
            with urllib.request.urlopen(url, timeout=10) as answer:
                if answer.status == 200:
                    return
                said = answer.status
        except urllib.error.HTTPError as error:
            said = error.code
            error.close()
        except OSError as error:
            said = error
        time.sleep(0.1)
    raise LabError(
        f"{PRODUCTION} on {host.name} was not healthy after {deadline:.0f} s: {said}. "
        f"See `rollpin lab ssh {host.name} -- docker logs {PRODUCTION}`."
    )


def reset(host: Host) -> None:
    """Back to what `up` left, from any state that the host can be in."""
    lab = host.lab
    if registry.digest_of(lab, images.MOVING) != lab.images[images.MOVING]:
        images.move_tag(lab, images.MOVING, lab.images[images.MOVING])
    host.power_on(wait=False)
    # dockerd may have been stopped; it is started again below
    host.wait_up(docker=False)
    host.run(["sh", "-c", CLEAR, "sh", image(host)], timeout=120)
    furnish(host)
