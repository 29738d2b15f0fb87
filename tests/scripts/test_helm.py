"""The chart of deploy/helm, rendered: what Kubernetes gets, and which values are refused."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import aerobee
import pytest
import yaml
from aerobee.broker.settings.config import KEYS
from aerobee.conf.load import Keys
from aerobee.conf.sources import from_environment
from aerobee.protocol.security.secret_mode import fault_of
from aerobee.scripts import cli
from aerobee.scripts.commands.controller import KEYS as CONTROLLER_KEYS
from aerobee.scripts.commands.daemons import NAMESRV_KEYS

from ..waiting import PROCESS
from .command import environment
from .kubeconform import KUBECONFORM, conforms

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "aerobee"
HELM = shutil.which("helm")
KUBERNETES = "1.31.0"
CONTROLLED = {
    "brokers": {"slaves": 1, "settings": {"haAllowedAddresses": "10.0.0.0/8"}},
    "controllers": {"replicas": 1},
}

pytestmark = pytest.mark.skipif(
    HELM is None, reason="helm is not installed: .github/workflows/nightly.yml says how"
)


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run(
        [HELM, *words], capture_output=True, text=True, timeout=PROCESS, check=False
    )


def template(folder: Path, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    words = ("template", "shop", str(CHART), "-f", str(file), "--kube-version", KUBERNETES)
    return helm(*words)


def rendered(folder: Path, **values: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects by kind and name."""
    done = template(folder, values)
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert len({(each["kind"], each["metadata"]["name"]) for each in found}) == len(found)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def container(objects: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    found = objects["StatefulSet", name]["spec"]["template"]["spec"]["containers"]
    assert len(found) == 1
    return dict(found[0])


def told(objects: dict[tuple[str, str], dict[str, Any]], part: str, number: int) -> dict[str, str]:
    """What the start of a pod tells its broker: variables, and the arguments as ARGS."""
    one, pod = container(objects, f"shop-{part}"), f"shop-{part}-{number}"
    own = {each["name"]: each.get("value", pod) for each in one["env"]}
    script = 'aerobee() { env; echo "ARGS=$*"; }\n' + one["args"][0].replace("exec ", "")
    done = subprocess.run(
        [*one["command"], script],
        capture_output=True,
        text=True,
        timeout=PROCESS,
        env=environment(own),
        check=True,
    )
    lines = (line.partition("=") for line in done.stdout.splitlines())
    return {
        name: value for name, _, value in lines if name.startswith(("AEROBEE_", "NAMESRV", "ARGS"))
    }


def test_helm_finds_nothing_to_say_about_the_chart() -> None:
    done = helm("lint", "--strict", "--kube-version", KUBERNETES, str(CHART))
    assert done.returncode == 0, done.stdout
    versions = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert versions["appVersion"] == aerobee.__version__


@pytest.mark.parametrize("values", [{}, CONTROLLED], ids=["masters", "controlled"])
def test_each_daemon_has_volume_probes_grace_and_a_budget(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    objects = rendered(tmp_path, **values)
    sets = [one for (kind, _), one in objects.items() if kind == "StatefulSet"]
    assert len(sets) == (4 if values else 2)
    for one in sets:
        name, spec, pod = one["metadata"]["name"], one["spec"], one["spec"]["template"]["spec"]
        labels = spec["template"]["metadata"]["labels"]
        service = objects["Service", spec["serviceName"]]["spec"]
        assert service["clusterIP"] == "None"
        assert spec["selector"]["matchLabels"] == service["selector"] == labels
        budget = objects["PodDisruptionBudget", name]["spec"]
        assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (labels, 1)
        spread = pod["affinity"]["podAntiAffinity"]
        rule = spread["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
        assert rule["labelSelector"]["matchLabels"] == labels
        # Else Kubernetes makes variables of the services that begin as settings do.
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        only = container(objects, name)
        assert only["securityContext"]["readOnlyRootFilesystem"] is True
        ports = {each["name"]: each["containerPort"] for each in only["ports"]}
        assert ports == {each["name"]: each["port"] for each in service["ports"]}
        paths = {kind: only[f"{kind}Probe"]["httpGet"] for kind in ("readiness", "liveness")}
        assert paths["readiness"] == {"path": "/readyz", "port": "http"}
        assert paths["liveness"] == {"path": "/healthz", "port": "http"}
        claims = [each["metadata"]["name"] for each in spec["volumeClaimTemplates"]]
        volumes = {each["name"] for each in pod.get("volumes", [])} | set(claims)
        assert len(claims) == 1
        assert {each["name"] for each in only["volumeMounts"]} == volumes
    brokers = objects["StatefulSet", "shop-broker"]["spec"]["template"]["spec"]
    assert brokers["terminationGracePeriodSeconds"] >= 60


def test_settings_and_commands_are_ones_that_there_are(tmp_path: Path) -> None:
    more = {"settings": {"logFormat": "json"}, "settingsSecret": "own"}
    tls = {"secretName": "cert"}
    objects = rendered(tmp_path, nameServers=more, tls=tls, **CONTROLLED)
    kinds: dict[str, Keys[Any]] = {
        "namesrv": NAMESRV_KEYS,
        "controller": CONTROLLER_KEYS,
        "broker": KEYS,
        "slave": KEYS,
    }
    for part, keys in kinds.items():
        one = container(objects, f"shop-{part}")
        volumes = objects["StatefulSet", f"shop-{part}"]["spec"]["template"]["spec"]["volumes"]
        (mode,) = (each["secret"]["defaultMode"] for each in volumes if "secret" in each)
        assert fault_of("tls.key", stat.S_IFREG | mode) == ""
        others = {"POD_NAME", "NAMESRV_ADDR", "NUMBA_CACHE_DIR"}
        names = {each["name"] for each in one["env"]} - others
        if "command" in one:
            names |= set(re.findall(r"(AEROBEE_\w+)=", one["args"][0]))
        else:
            assert one["args"][0] in cli.COMMANDS
        given = from_environment(dict.fromkeys(names, "x"), keys.fields)
        assert {each.key for each in given} <= keys.fields.keys()
        assert len(given) == len(names)
        assert {"tls"} <= {each["name"] for each in one["volumeMounts"]}
    assert "--set=logFormat=json" in container(objects, "shop-namesrv")["args"]
    assert container(objects, "shop-namesrv")["envFrom"] == [{"secretRef": {"name": "own"}}]


def test_a_broker_is_told_its_name_and_its_address_in_the_cluster(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": 1 << 30, "regionId": "a'b $x"}
    objects = rendered(tmp_path, brokers={"slaves": 1, "settings": settings})
    master, slave = told(objects, "broker", 1), told(objects, "slave", 1)
    names = "shop-namesrv-0.shop-namesrv:9876;shop-namesrv-1.shop-namesrv:9876"
    assert master["NAMESRV_ADDR"] == names
    assert master["AEROBEE_BROKER_NAME"] == slave["AEROBEE_BROKER_NAME"] == "shop-1"
    assert master["AEROBEE_BROKER_IP1"] == "shop-broker-1.shop-broker"
    assert "AEROBEE_BROKER_ROLE" not in master
    assert (slave["AEROBEE_BROKER_ROLE"], slave["AEROBEE_BROKER_ID"]) == ("SLAVE", "1")
    assert slave["AEROBEE_BROKER_IP1"] == "shop-slave-1.shop-slave"
    assert master["ARGS"] == "broker --set=mappedFileSizeCommitLog=1073741824 --set=regionId=a'b $x"


def test_clients_outside_are_told_a_port_of_the_node(tmp_path: Path) -> None:
    external = {"type": "nodePort", "addresses": ["203.0.113.7"], "firstPort": 31000}
    objects = rendered(tmp_path, external=external)
    for number in range(2):
        own, port = told(objects, "broker", number), 31000 + number
        assert (own["AEROBEE_BROKER_IP1"], own["AEROBEE_LISTEN_PORT"]) == ("203.0.113.7", str(port))
        assert own["AEROBEE_BROKER_IP2"] == f"shop-broker-{number}.shop-broker"
        service = objects["Service", f"shop-broker-{number}"]["spec"]
        assert service["ports"][0] == {
            "name": "broker",
            "port": port,
            "targetPort": port,
            "nodePort": port,
        }
        assert service["selector"] == {
            "statefulset.kubernetes.io/pod-name": f"shop-broker-{number}"
        }


def test_clients_outside_are_told_the_address_of_a_load_balancer(tmp_path: Path) -> None:
    external = {"type": "loadBalancer", "addresses": ["b0.example.org", "b1.example.org"]}
    objects = rendered(tmp_path, external=external)
    for number in range(2):
        own = told(objects, "broker", number)
        assert own["AEROBEE_BROKER_IP1"] == f"b{number}.example.org"
        assert objects["Service", f"shop-broker-{number}"]["spec"]["type"] == "LoadBalancer"


def test_a_controller_elects_the_master_of_both_brokers_of_a_name(tmp_path: Path) -> None:
    objects = rendered(tmp_path, **CONTROLLED)
    for part in ("broker", "slave"):
        own = told(objects, part, 0)
        assert own["AEROBEE_ENABLE_CONTROLLER_MODE"] == "true"
        assert own["AEROBEE_CONTROLLER_ADDR"] == "shop-controller-0.shop-controller:9878"
        assert "AEROBEE_BROKER_ROLE" not in own


def test_prometheus_is_told_of_all_daemons(tmp_path: Path) -> None:
    objects = rendered(tmp_path, serviceMonitor={"enabled": True}, brokers={"slaves": 1})
    for part in ("namesrv", "broker", "slave"):
        monitor = objects["ServiceMonitor", f"shop-{part}"]["spec"]
        labels = objects["Service", f"shop-{part}"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
        assert monitor["endpoints"] == [{"port": "http", "path": "/metrics", "interval": "30s"}]


def test_prometheus_sends_the_token_of_the_endpoints(tmp_path: Path) -> None:
    secret = {"name": "shop-http", "key": "token"}
    objects = rendered(tmp_path, serviceMonitor={"enabled": True, "tokenSecret": secret})
    for part in ("namesrv", "broker"):
        (endpoint,) = objects["ServiceMonitor", f"shop-{part}"]["spec"]["endpoints"]
        assert endpoint["authorization"] == {"type": "Bearer", "credentials": secret}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"broker": {}}, "'broker' not allowed"),
        ({"brokers": {"storage": {"size": "many"}}}, "/brokers/storage/size"),
        ({"brokers": {"settings": {"listenPort": 1}}}, "propertyName 'listenPort'"),
        ({"external": {"type": "nodePort", "addresses": ["a;reboot"]}}, "/external/addresses/0"),
        ({"external": {"type": "nodePort"}}, "/external/addresses"),
        ({"external": {"addresses": ["a"]}}, "/external/addresses"),
        ({"external": {"type": "loadBalancer", "addresses": ["a"]}}, "1 addresses for 2 brokers"),
        ({"controllers": {"replicas": 1}}, "/brokers/slaves"),
        ({"controllers": {"replicas": 1}, "brokers": {"slaves": 1}}, "haAllowedAddresses"),
        ({"tls": {"mode": "enforcing"}}, "/tls/secretName"),
        ({"serviceMonitor": {"tokenSecret": {"name": "shop-http"}}}, "/serviceMonitor/tokenSecret"),
    ],
)
def test_values_that_are_unknown_or_contradict_each_other_are_refused(
    tmp_path: Path, values: dict[str, Any], says: str
) -> None:
    done = template(tmp_path, values)
    assert done.returncode != 0
    assert says in done.stderr


CLUSTERS: dict[str, dict[str, Any]] = {
    "masters": {},
    "controlled": CONTROLLED,
    "outside": {
        "external": {"type": "nodePort", "addresses": ["203.0.113.7"], "firstPort": 31000},
        "brokers": {"slaves": 1},
        "tls": {"secretName": "cert"},
        "serviceMonitor": {"enabled": True},
    },
    "balanced": {"external": {"type": "loadBalancer", "addresses": ["b0.example", "b1.example"]}},
}


@pytest.mark.skipif(
    KUBECONFORM is None,
    reason="kubeconform is not installed: .github/workflows/nightly.yml says how",
)
@pytest.mark.parametrize("values", CLUSTERS.values(), ids=CLUSTERS)
def test_kubernetes_takes_each_object(tmp_path: Path, values: dict[str, Any]) -> None:
    made = template(tmp_path, values).stdout
    done = conforms(made)
    assert done.returncode == 0, done.stdout
    wrong = made.replace("terminationGracePeriodSeconds:", "terminationGraceSeconds:")
    assert conforms(wrong).returncode != 0
