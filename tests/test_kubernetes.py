"""The Kubernetes example names settings, ports and paths that exist, and its parts fit each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from samebits.cli.main import app
from samebits.server.app import ROUTES

FOLDER = Path(__file__).parents[1] / "packaging" / "kubernetes"
CONTAINERFILE = FOLDER.parent / "Containerfile"


def objects(name: str) -> dict[str, Any]:
    """By kind; each is there once."""
    found = list(yaml.safe_load_all((FOLDER / name).read_text()))
    by_kind = {each["kind"]: each for each in found}
    assert len(by_kind) == len(found)
    return by_kind


@pytest.fixture
def container() -> dict[str, Any]:
    (only,) = objects("samebits.yaml")["Deployment"]["spec"]["template"]["spec"]["containers"]
    return only


def test_settings_are_settings_of_the_server(container: dict[str, Any]) -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    named = {each["name"] for each in container["env"]} - {"POD_IP"}
    assert {"SAMEBITS_KV_EVENTS", "SAMEBITS_OPEN_METRICS", "SAMEBITS_API_KEY"} <= named
    assert [name for name in named if not re.search(rf"{name}\b", shown)] == []
    assert container["args"][0] == "serve"
    assert [word for word in container["args"] if word.startswith("--") and word not in shown] == []


def test_probes_ask_a_path_that_needs_no_key(container: dict[str, Any]) -> None:
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {(probe["path"], probe["port"]) for probe in probes} == {("/health", "http")}
    assert ("GET", "/health") in {(method, path) for method, path, _ in ROUTES}


def test_ports_and_labels_fit(container: dict[str, Any]) -> None:
    parts, pool = objects("samebits.yaml"), objects("inference-pool.yaml")
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["SAMEBITS_KV_EVENTS"] == f"tcp://*:{ports['kv-events']}"
    assert env["SAMEBITS_KV_EVENTS_REPLAY"] == f"tcp://*:{ports['kv-replay']}"
    assert env["SAMEBITS_KV_EVENTS_TOPIC"].startswith(f"kv@$(POD_IP):{ports['http']}@")
    assert f"EXPOSE {ports['http']}" in CONTAINERFILE.read_text()
    assert pool["InferencePool"]["spec"]["targetPorts"] == [{"number": ports["http"]}]
    labels = parts["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = (
        parts["Deployment"]["spec"]["selector"]["matchLabels"],
        parts["Service"]["spec"]["selector"],
        parts["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        pool["InferencePool"]["spec"]["selector"]["matchLabels"],
    )
    assert all(selector.items() <= labels.items() for selector in selectors)
    allowed = {port["port"] for rule in parts["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == ports.keys()


def test_the_picker_is_told_what_the_server_tells(container: dict[str, Any]) -> None:
    pool = objects("inference-pool.yaml")
    config = yaml.safe_load(pool["ConfigMap"]["data"]["config.yaml"])
    plugins = {each["type"]: each.get("parameters", {}) for each in config["plugins"]}
    used = {each["pluginRef"] for each in config["schedulingProfiles"][0]["plugins"]}
    assert used <= plugins.keys()
    events = plugins["precise-prefix-cache-producer"]
    assert events["kvEventsConfig"]["podDiscoveryConfig"]["socketPort"] == 5557
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    (page_size,) = re.findall(r"--page-size.*?default (\d+)", shown, re.S)[:1]
    assert events["tokenProcessorConfig"]["blockSizeTokens"] == int(page_size)
    assert plugins["token-producer"]["modelName"] == container["args"][2]


def test_a_container_starts_from_an_image_that_can_be_made_without_a_registry() -> None:
    lines = CONTAINERFILE.read_text().splitlines()
    assert [line for line in lines if line.startswith("FROM")] == ["FROM ${BASE} AS build", "FROM ${BASE}"]
    script = (CONTAINERFILE.parent / "make_base.sh").read_text()
    assert "debootstrap --variant=minbase bookworm" in script
    assert "buildah from scratch" in script
