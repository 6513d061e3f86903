# SPDX-License-Identifier: Apache-2.0
"""Simulated Azure without a cluster: a store, its HTTP servers, and the provider behind a real gRPC connection."""

import datetime as dt
import ipaddress
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import pytest
from azure.core.credentials import TokenCredential
from azure.identity import ManagedIdentityCredential
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc

from localcloud.azure.effects import Place
from localcloud.azure.provider import AzureNative
from localcloud.azure.records import Resource
from localcloud.azure.server import Servers, serve
from localcloud.azure.store import Store
from localcloud.azure.surroundings import Surroundings
from localcloud.plugin.values import to_struct
from tests.localcloud.azure.asking import GROUP, SUBSCRIPTION, Engine
from tests.localcloud.plugin.conftest import make_project

__all__ = ["make_project"]

ARM: Final = "https://127.0.0.1:1"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of a cloud that claims to run."""
    (tmp_path / "kubeconfig").write_text("kind: Config\n")
    (tmp_path / "cloud.json").write_text(json.dumps({"arm": ARM, "kubeconfig": str(tmp_path / "kubeconfig")}))
    return tmp_path


@pytest.fixture
def store(state: Path) -> Iterator[Store]:
    store = Store(state / "store.db")
    yield store
    store.close()


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture
def servers(
    store: Store, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Servers]:
    """All HTTP servers, and the environment in which Azure's own libraries find them."""
    with serve(
        store,
        tls_certificate=certificate[0],
        tls_key=certificate[1],
        pyroscope_address="127.0.0.1",
        pyroscope_port=0,
    ) as servers:
        monkeypatch.setenv("IDENTITY_ENDPOINT", servers.identity)
        monkeypatch.setenv("IDENTITY_HEADER", servers.identity_header)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate[0]))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        yield servers


@pytest.fixture
def credential(servers: Servers) -> TokenCredential:
    return ManagedIdentityCredential()


@pytest.fixture
def group(store: Store) -> Resource:
    """A resource group that is there."""
    group = Resource(
        id=GROUP,
        token="azure-native:resources:ResourceGroup",
        outputs={"location": "westeurope", "name": "rg"},
    )
    store.create_resource(group, actor="test")
    return group


@pytest.fixture
def engine(store: Store, state: Path) -> Iterator[Engine]:
    provider = AzureNative(Place(store=store, surroundings=Surroundings(state=state)), version="3.29.0")
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        stub.Configure(pb.ConfigureRequest(args=to_struct({"subscriptionId": SUBSCRIPTION})))
        yield Engine(stub)
    server.stop(grace=None)
