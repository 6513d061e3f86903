# SPDX-License-Identifier: Apache-2.0
"""Certificates, judged by OpenSSL as Python uses it."""

import socket
import ssl
import threading
from pathlib import Path

from localcloud.kube.certificates import CertificateAuthority, IssuedCertificate


def greet(issued: IssuedCertificate, authority: Path, name: str) -> None:
    """One TLS handshake, verified strictly (what Python 3.13 does by default)."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(issued.certificate, issued.key)
    trusting = ssl.create_default_context(cafile=str(authority))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=lambda: server.wrap_socket(theirs, server_side=True).close())
        thread.start()
        trusting.wrap_socket(ours, server_hostname=name).close()
        thread.join()


def test_a_strict_client_accepts_the_certificate_for_loopback_and_the_names_given(tmp_path: Path) -> None:
    authority = CertificateAuthority.in_folder(tmp_path)
    issued = authority.issue(
        tmp_path, "server", dns_names=["kubernetes.default.svc"], addresses=["10.96.0.1"]
    )
    for name in ("127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"):
        greet(issued, authority.certificate_path, name)


def test_an_authority_stays_the_same_for_a_folder(tmp_path: Path) -> None:
    first = CertificateAuthority.in_folder(tmp_path)
    issued = CertificateAuthority.in_folder(tmp_path).issue(tmp_path, "server")
    greet(issued, first.certificate_path, "localhost")


def test_keys_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    issued = CertificateAuthority.in_folder(tmp_path).issue(tmp_path, "server")
    for key in (issued.key, tmp_path / "ca.key"):
        assert key.stat().st_mode & 0o077 == 0, key.name
