"""Certificates are verified, over HTTP and WebSocket alike."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


def certify(folder: Path, *, host: x509.GeneralName, since: int = -1, until: int = 1) -> Path:
    """A self-signed certificate for a host, good from so many hours from now until so many, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fake")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now + datetime.timedelta(hours=since))
        .not_valid_after(now + datetime.timedelta(hours=until))
        .add_extension(x509.SubjectAlternativeName([host]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(made.public_bytes(Encoding.PEM) + private)
    return file


HERE = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1, and its key."""
    return certify(tmp_path, host=HERE)


@pytest.mark.parametrize(("script", "scheme"), [("http_server.py", "https"), ("websocket_server.py", "wss")])
async def test_a_certificate_of_nobody_known_is_refused(
    serve: Any, connected: Any, certificate: Path, script: str, scheme: str
) -> None:
    async with connected(serve(script, f"tls={certificate}").url(scheme=scheme), wait=False) as server:
        assert server.ended.kind == "start"
        assert "certificate verify failed" in server.ended.reason


@pytest.mark.parametrize(("script", "scheme"), [("http_server.py", "https"), ("websocket_server.py", "wss")])
async def test_a_certificate_that_is_trusted_is_taken(
    serve: Any, connected: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch, script: str, scheme: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with connected(serve(script, f"tls={certificate}").url(scheme=scheme)) as server:
        assert await server.text("echo", {"text": "secret"}) == "secret"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"host": x509.DNSName("elsewhere.example")}, "IP address mismatch"),
        ({"host": HERE, "since": -3, "until": -2}, "certificate has expired"),
        ({"host": HERE, "since": 2, "until": 3}, "certificate is not yet valid"),
    ],
    ids=["host", "expired", "early"],
)
@pytest.mark.parametrize(("script", "scheme"), [("http_server.py", "https"), ("websocket_server.py", "wss")])
async def test_a_trusted_certificate_of_another_host_or_time_is_refused(
    serve: Any, connected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, scheme: str, wrong: Any,
    said: str,
) -> None:  # fmt: skip
    certificate = certify(tmp_path, **wrong)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with connected(serve(script, f"tls={certificate}").url(scheme=scheme), wait=False) as server:
        assert server.ended.kind == "start"
        assert said in server.ended.reason
