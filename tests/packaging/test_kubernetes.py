"""The manifests: as kustomize makes them of these files, against the schemas that are published."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from barco import config as configuration
from barco.config import Config
from barco.kubernetes.pods import FIRST, pod_of
from barco.workers.http.needs import NEEDS

ROOM = Path(__file__).resolve().parents[2] / "packaging" / "kubernetes"
FOLDERS = ("base", "io-uring", "closed")
VERSIONS = ("1.29", "1.32", kubernetes_validate.latest_version())

with_kubectl = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="no kubectl here: kustomize is a part of it"
)


def written() -> list[dict[str, Any]]:
    """What the files of the base say themselves."""
    kustomization = yaml.safe_load((ROOM / "base" / "kustomization.yaml").read_text())
    texts = [(ROOM / "base" / name).read_text() for name in kustomization["resources"]]
    return [each for text in texts for each in yaml.safe_load_all(text)]


def made(folder: str) -> list[dict[str, Any]]:
    """What kubectl would apply."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(ROOM / folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def one(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (each for each in documents if each["kind"] == kind)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_take_what_is_written(version: str) -> None:
    for document in written():
        kubernetes_validate.validate(document, version, strict=True)


@with_kubectl
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_schemas_take_what_is_applied(folder: str) -> None:
    documents = made(folder)
    for document in documents:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "barco"
    kinds = sorted(each["kind"] for each in documents)
    kinds.remove("Service")  # There are two.
    assert kinds == [
        *("ConfigMap", "Namespace", "PodDisruptionBudget", "Role", "RoleBinding", "Service"),
        *("ServiceAccount", "StatefulSet"),
    ]
    pod = one(documents, "StatefulSet")["spec"]["template"]["spec"]
    (config,) = (each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each)
    assert config == one(documents, "ConfigMap")["metadata"]["name"] != "barco"
    assert {each["image"] for each in (*pod["initContainers"], *pod["containers"])} == {
        "barco:0.1.0"
    }
    profile = pod["securityContext"]["seccompProfile"]
    assert profile["type"] == ("Localhost" if folder == "io-uring" else "RuntimeDefault")
    for container in (*pod["initContainers"], *pod["containers"]):
        known = set[str]()
        for each in container.get("env", []):  # A name that comes later is not put in.
            assert set(re.findall(r"\$\((\w+)\)", each.get("value", ""))) <= known, each
            known.add(each["name"])
        assert set(re.findall(r"\$\((\w+)\)", " ".join(container.get("args", [])))) <= known
        volumes = {each["name"] for each in pod["volumes"]} | {"data"}
        assert {each["name"] for each in container["volumeMounts"]} <= volumes


@with_kubectl
def test_closed_it_needs_no_leave_to_be_open_and_asks_for_what_needs_no_token() -> None:
    pod = one(made("closed"), "StatefulSet")["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    assert "--insecure-allow-open" not in broker["args"]
    before = one(made("base"), "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [each for each in before if each != "--insecure-allow-open"] == broker["args"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = broker[probe]["httpGet"]
        assert asked["scheme"] == "HTTPS" and NEEDS["GET", asked["path"]].open
    config = configuration.load(ROOM / "closed" / "barco.toml", {})
    assert config.access.required and config.tls.certificate and config.cluster.ca
    assert config.cluster.tls_required and not config.tls.client_ca  # The kubelet has none.
    base = configuration.load(ROOM / "base" / "barco.toml", {})
    assert config.clients == base.clients and config.cluster.secret_file == base.cluster.secret_file
    mounts = {each["mountPath"] for each in broker["volumeMounts"]}
    paths = {each["name"]: each.get("value", "") for each in broker["env"]}
    for path in (config.tls.key, config.cluster.key, config.cluster.ca, paths["BARCO_CA"]):
        assert path.rpartition("/")[0] in mounts
    assert paths["BARCO_TOKEN_FILE"].rpartition("/")[0] in mounts


def test_a_slip_is_caught() -> None:
    wrong = one(written(), "StatefulSet")
    wrong["spec"]["template"]["spec"]["hostNetworks"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_names_ports_and_labels_belong_together() -> None:
    documents = written()
    owner = one(documents, "StatefulSet")
    labels = owner["spec"]["template"]["metadata"]["labels"]
    services = {each["metadata"]["name"]: each for each in documents if each["kind"] == "Service"}
    headless = services[owner["spec"]["serviceName"]]["spec"]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"]
    selectors = [each["spec"]["selector"] for each in services.values()]
    selectors += [one(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    selectors += [owner["spec"]["selector"]["matchLabels"]]
    assert all(each == labels for each in selectors)
    (broker,) = owner["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in broker["ports"]}
    usual = Config().ports
    assert ports == {name: getattr(usual, name) for name in configuration.PORT_NAMES}
    for service in services.values():
        for port in service["spec"]["ports"]:
            assert ports[port["name"]] == port["port"]
    (rule,) = one(documents, "Role")["rules"]
    assert rule["resourceNames"] == [owner["metadata"]["name"]]
    assert set(rule["verbs"]) == {"get", "list", "watch"}
    assert owner["spec"]["replicas"] == FIRST
    assert pod_of(f"barco/{owner['metadata']['name']}-2").ordinal == 2
    grace = owner["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    hook = broker["lifecycle"]["preStop"]["exec"]["command"][-1]
    (waits,) = re.findall(r"--timeout (\d+)", hook)
    assert int(waits) + 25 < grace


def test_the_configuration_is_one_and_leaves_the_rest_to_the_statefulset() -> None:
    config = configuration.load(ROOM / "base" / "barco.toml", {})
    assert not config.cluster.brokers and config.broker.ordinal == -1
    assert config.cluster.secret_file == "/run/barco/secret"


def test_the_profile_lets_io_uring_in_and_little_that_a_broker_does_not_need() -> None:
    profile = json.loads((ROOM / "io-uring" / "barco.json").read_text())
    refused = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert not {"io_uring_setup", "io_uring_enter", "io_uring_register"} & refused
    assert {"mount", "ptrace", "bpf", "unshare", "kexec_load", "keyctl"} <= refused
    patched = (ROOM / "io-uring" / "kustomization.yaml").read_text()
    assert "localhostProfile: profiles/barco.json" in patched
