"""The official conformance suite for MCP clients, whole, driven through the daemon's own client.

Each of a revision's required scenarios is a test, and so are those beyond that this daemon can do. What is left are
extensions of authorization that it does not have; of each it is held what the suite says is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.npm

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node@22.23.3"
CLIENT = Path(__file__).with_name("client.py")
BOTH = [
    "tools_call",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
]
REQUIRED = {
    "2025-11-25": ["initialize", "elicitation-sep1034-client-defaults", "sse-retry", *BOTH],
    "2026-07-28": [
        "request-metadata",
        *BOTH,
        "auth/resource-mismatch",
        "auth/offline-access-scope",
        "auth/offline-access-not-supported",
        "auth/authorization-server-migration",
        "auth/iss-supported",
        "auth/iss-not-advertised",
        "auth/iss-supported-missing",
        "auth/iss-wrong-issuer",
        "auth/iss-unexpected",
        "auth/iss-normalized",
        "auth/metadata-issuer-mismatch",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ],
}
BEYOND = ["json-schema-2020-12-preservation"]
EXTENSIONS = ["auth/client-credentials-basic"]
LACKING = {
    "auth/client-credentials-jwt": "Invalid client_assertion_type: undefined",
    "auth/dpop": "Client did not present a valid DPoP proof at the token endpoint",
    "auth/dpop-nonce": "Client did not present a valid DPoP proof at the token endpoint",
    "auth/enterprise-managed-authorization": "Client did not perform token exchange",
    "auth/wif-jwt-bearer": "Expected grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer",
}
SCENARIOS = [(version, scenario) for version, scenarios in REQUIRED.items() for scenario in [*scenarios, *BEYOND]]
SCENARIOS += [("extension", scenario) for scenario in EXTENSIONS]
NOT_PASSED = [("extension", scenario) for scenario in LACKING]

Verdict = tuple[int, str]


def _alone() -> list[str]:
    """Begins a command in a network of its own: the suite's servers listen on all interfaces."""
    unshare = ["unshare", "-n" if os.geteuid() == 0 else "-rn"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here")
    return unshare


@pytest.fixture(scope="session")
def suite(npm_install: Callable[..., Path]) -> list[str]:
    """The suite's command."""
    programs = npm_install(SUITE, NODE)
    script = programs.parent / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return [str(programs / "node"), str(script)]


@pytest.fixture(scope="session")
def verdicts(
    suite: list[str], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[Verdict]]]:
    """What the suite says of each scenario that this session asks for, two at a time."""
    alone, folder = _alone(), tmp_path_factory.mktemp("conformance")

    def judge(version: str, scenario: str) -> Verdict:
        command = [*suite, "client", "--command", f"{sys.executable} {CLIENT}", "--scenario", scenario]
        command += [] if version == "extension" else ["--spec-version", version]
        up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        done = subprocess.run(
            [*alone, *up, *command], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr

    wanted = [item.callspec.params["which"] for item in request.session.items if hasattr(item, "callspec")
              and "which" in item.callspec.params]  # fmt: skip
    with ThreadPoolExecutor(2) as workers:
        yield {which: workers.submit(judge, *which) for which in wanted}
        workers.shutdown(cancel_futures=True)


def _listed(suite: list[str], version: str) -> tuple[list[str], list[str]]:
    """The client's scenarios of a revision: those that the suite requires, and those that it does not score."""
    text = (Path(suite[1]).parents[1] / "requirements" / f"{version}.yaml").read_text()
    required, _, unscored = text.partition("\nclient:\n")[2].partition("\nnot_scored:")
    return (
        [line.removeprefix("  - ").strip() for line in required.splitlines() if line.startswith("  - ")],
        re.findall(r"- scenario: (\S+)\n +leg: client", unscored),
    )


@pytest.mark.parametrize(("version", "count"), [("2025-11-25", 18), ("2026-07-28", 32)])
def test_the_scenarios_here_are_all_that_the_suite_has_for_a_revision(
    suite: list[str], version: str, count: int
) -> None:
    required, unscored = _listed(suite, version)
    assert sorted(required) == sorted(REQUIRED[version])
    assert len(required) == count
    assert sorted(unscored) == sorted([*BEYOND, *EXTENSIONS, *LACKING])


@pytest.mark.parametrize("which", SCENARIOS, ids="-".join)
def test_scenario(verdicts: dict[tuple[str, str], Future[Verdict]], which: tuple[str, str]) -> None:
    code, text = verdicts[which].result()
    assert code == 0, text[-4000:]
    assert "OVERALL: PASSED" in text


@pytest.mark.parametrize("which", NOT_PASSED, ids="-".join)
def test_what_is_not_there_is_what_the_suite_misses(
    verdicts: dict[tuple[str, str], Future[Verdict]], which: tuple[str, str]
) -> None:
    code, text = verdicts[which].result()
    assert code != 0
    assert LACKING[which[1]] in text
