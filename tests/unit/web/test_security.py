import asyncio
import base64
import importlib.util
import ssl
from dataclasses import fields
from pathlib import Path

import bcrypt
import httpx
import pytest
import trustme
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from phasewatch.base.errors import ConfigError
from phasewatch.web.security import ServerTls, WebConfig, create_tls_arguments, load_web_config, protect
from tests.support.fakes import Exporter

PASSWORD = "correct horse: battery"  # noqa: S105  # planted
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
LONG = "x" * 100
LONG_HASH = bcrypt.hashpw(LONG[:72].encode(), bcrypt.gensalt(4)).decode()
ENDPOINTS = ("/", "/style.css", "/metrics", "/-/healthy", "/-/ready", "/-/reload", "/nothing")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our certificate and key, and the authority that both sides trust."""
    folder = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return folder


def client_tls(authority: trustme.CA, client: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if client:
        client.configure_cert(context)
    return context


def loaded(tmp_path: Path, text: str) -> WebConfig:
    path = tmp_path / "web.yml"
    path.write_text(text)
    return load_web_config(path)


def complaints(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    return [str(problem) for problem in refused.value.problems]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("inside")(scope, receive, send)


def statuses(app: ASGIApp, *headers: str | bytes | None, path: str = "/metrics") -> list[int]:
    """What one application answers to requests with these Authorization headers."""

    async def go() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://phasewatch") as client:
            sent: list[dict[str, str | bytes]] = [{} if h is None else {"Authorization": h} for h in headers]
            return [(await client.get(path, headers=header)).status_code for header in sent]  # type: ignore[arg-type]

    return asyncio.run(go())


GUARDED = WebConfig(users={"prometheus": HASH.encode(), "long": LONG_HASH.encode()})


def test_without_a_file_nothing_is_protected() -> None:
    config = load_web_config(None)
    assert config == WebConfig()
    assert protect(inner, config) is inner
    assert create_tls_arguments(config) == {}


def test_requests_with_the_right_password_are_answered_each_time() -> None:
    right = basic("prometheus", PASSWORD)
    assert statuses(protect(inner, GUARDED), right, right, right.replace("Basic", "bAsIc")) == [200, 200, 200]


def test_requests_without_the_right_password_are_refused() -> None:
    for header in (
        None,
        "",
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic cHJvbWV0aGV1cw",
        "Basic " + base64.b64encode(b"prometheus").decode(),
        "Basic " + base64.b64encode(b"\xff:\xfe").decode(),
        "Basic \u00e9".encode("latin-1"),
        "Bearer " + base64.b64encode(f"prometheus:{PASSWORD}".encode()).decode(),
        base64.b64encode(f"prometheus:{PASSWORD}".encode()).decode(),
        basic("prometheus", ""),
        basic("prometheus", "wrong"),
        basic("prometheus", "wrong\x00"),
        basic("prometheus", PASSWORD + " "),
        basic("prometheus", HASH),
        basic("Prometheus", PASSWORD),
        basic("nobody", PASSWORD),
        basic("long", PASSWORD),
        basic("", ""),
    ):
        app = protect(inner, GUARDED)
        assert statuses(app, basic("prometheus", PASSWORD), header, header) == [200, 401, 401], header


def test_a_password_of_any_length_is_compared_as_bcrypt_does() -> None:
    assert statuses(protect(inner, GUARDED), basic("long", LONG), basic("long", "y" * 100)) == [200, 401]


def test_no_endpoint_is_left_open() -> None:
    for path in ENDPOINTS:
        assert statuses(protect(inner, GUARDED), None, basic("prometheus", PASSWORD), path=path) == [401, 200], path


def test_a_refusal_asks_for_basic_authentication() -> None:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(protect(inner, GUARDED))
        async with httpx.AsyncClient(transport=transport, base_url="http://phasewatch") as client:
            return await client.get("/")

    answer = asyncio.run(go())
    assert answer.headers["www-authenticate"] == 'Basic realm="phasewatch"'
    assert answer.text == "Unauthorized\n"


def test_the_file_configures_users_and_certificates(files: Path, tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        f"""
tls_server_config:
  cert_file: {files}/cert.pem
  key_file: {files}/key.pem
  client_ca_file: {files}/ca.pem
  client_auth_type: RequireAndVerifyClientCert
  min_version: TLS13
basic_auth_users:
  prometheus: {HASH}
""",
    )
    assert config.users == {"prometheus": HASH.encode()}
    assert config.tls == ServerTls(files / "cert.pem", files / "key.pem", files / "ca.pem", ssl.TLSVersion.TLSv1_3)


def test_an_empty_section_protects_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, "basic_auth_users: {}\n") == WebConfig()


TLS_KEYS = {"client_auth_type", *(setting.name for setting in fields(ServerTls))}
"""The keys of TLS. All but one are settings, so that none is accepted and then ignored; that one must agree with the
authority.
"""

MISTAKES = (
    ("basic_auth_user: {}", "basic_auth_user: unknown key; did you mean basic_auth_users?"),
    (
        "rate_limit: {}",
        "rate_limit: unknown key; known here: basic_auth_users, tls_server_config",
    ),
    (
        "tls_server_config: {cert_file: a, key_file: b, ciphers: []}",
        f"tls_server_config.ciphers: unknown key; known here: {', '.join(sorted(TLS_KEYS))}",
    ),
    ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: missing; this key is required"),
    ("tls_server_config: {key_file: a}", "tls_server_config.cert_file: missing; this key is required"),
    (
        "tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}",
        "tls_server_config: client_ca_file and client_auth_type: RequireAndVerifyClientCert belong together",
    ),
    (
        "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}",
        "tls_server_config: client_ca_file and client_auth_type: RequireAndVerifyClientCert belong together",
    ),
    (
        "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}",
        (
            "tls_server_config.client_auth_type: expected 'NoClientCert' or 'RequireAndVerifyClientCert', "
            "found 'RequestClientCert'"
        ),
    ),
    (
        "tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}",
        "tls_server_config.min_version: expected 'TLS12' or 'TLS13', found 'TLS10'",
    ),
    (
        "tls_server_config: {cert_file: /none, key_file: /none}",
        "tls_server_config: a file cannot be used: No such file or directory",
    ),
    ("basic_auth_users: [a]", "basic_auth_users: expected a mapping of keys"),
    ("basic_auth_users: {a: 1}", "basic_auth_users.a: expected text"),
    (
        "basic_auth_users: {a: hunter2}",
        "basic_auth_users.a: expected a bcrypt hash, as `htpasswd -nBC 10 USER` makes it",
    ),
    (
        "basic_auth_users: {a: $2y$10$hunter2}",
        "basic_auth_users.a: expected a bcrypt hash, as `htpasswd -nBC 10 USER` makes it",
    ),
    (
        f"basic_auth_users: {{a: {HASH}, a: {HASH}}}",
        "basic_auth_users.a: given twice, in line 1 and line 1; keep one",
    ),
)


def test_every_mistake_of_the_file_has_its_message(tmp_path: Path) -> None:
    for text, problem in MISTAKES:
        assert complaints(tmp_path, text) == [problem], text


def test_a_key_that_does_not_fit_the_certificate_is_refused(files: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(other)
    (problem,) = complaints(tmp_path, f"tls_server_config: {{cert_file: {files}/cert.pem, key_file: {other}}}")
    assert problem.startswith("tls_server_config: a file cannot be used: ")
    assert "KEY_VALUES_MISMATCH" in problem


def test_no_message_has_a_hash_or_a_password(tmp_path: Path) -> None:
    assert HASH not in repr(loaded(tmp_path, f"basic_auth_users: {{a: {HASH}}}"))
    for text in (
        f"basic_auth_users: {{a: hunter2, b: {HASH}}}",
        f"basic_auth_users: [hunter2, {HASH}]",
        f"basic_auth_users: {{a: [hunter2, {HASH}]}}",
        f"basic_auth_users: {{a: {HASH}, b: {HASH}, a: hunter2}}\nxyz: 1",
    ):
        messages = " ".join(complaints(tmp_path, text))
        assert HASH not in messages, text
        assert "hunter2" not in messages, text


def test_users_without_bcrypt_are_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None if name == "bcrypt" else find_spec(name))
    assert complaints(tmp_path, f"basic_auth_users: {{a: {HASH}}}") == [
        "basic_auth_users: needs bcrypt: `pip install bcrypt`, with the pip of the environment that runs PhaseWatch"
    ]
    assert loaded(tmp_path, "basic_auth_users: {}") == WebConfig()


def test_tls_and_users_guard_the_running_exporter(files: Path, authority: trustme.CA, tmp_path: Path) -> None:
    web, config = tmp_path / "web.yml", tmp_path / "phasewatch.yml"
    web.write_text(f"""
tls_server_config: {{cert_file: {files}/cert.pem, key_file: {files}/key.pem}}
basic_auth_users: {{prometheus: {HASH}}}
""")
    config.write_text('targets: [{name: chat, backend: vllm, url: "http://127.0.0.1:9", optional: true}]')
    words = ("--config.file", str(config), "--web.config.file", str(web), "--web.enable-lifecycle")
    with Exporter(*words, "--log.level", "debug", verify=client_tls(authority)) as exporter:
        assert exporter.url.startswith("https://")
        assert exporter.ask("/metrics").status_code == 401
        assert exporter.ask("/-/reload", "POST").status_code == 401
        assert exporter.ask("/metrics", headers={"Authorization": basic("prometheus", "wrong")}).status_code == 401
        answer = exporter.ask("/metrics", headers={"Authorization": basic("prometheus", PASSWORD)})
        assert (answer.status_code, "phasewatch_build_info" in answer.text) == (200, True)
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(exporter.url, trust_env=False)
        log = "\n".join(exporter.lines)
    assert HASH not in log
    assert PASSWORD not in log


def test_a_client_certificate_is_demanded_where_one_is_required(
    files: Path, authority: trustme.CA, tmp_path: Path
) -> None:
    web, config = tmp_path / "web.yml", tmp_path / "phasewatch.yml"
    web.write_text(f"""
tls_server_config:
  cert_file: {files}/cert.pem
  key_file: {files}/key.pem
  client_ca_file: {files}/ca.pem
  client_auth_type: RequireAndVerifyClientCert
""")
    config.write_text('targets: [{name: chat, backend: vllm, url: "http://127.0.0.1:9", optional: true}]')
    stranger = trustme.CA().issue_cert("prometheus@example.org")
    words = ("--config.file", str(config), "--web.config.file", str(web))
    with Exporter(*words, verify=client_tls(authority, authority.issue_cert("prometheus@example.org"))) as exporter:
        assert exporter.ask("/-/healthy").status_code == 200
        for context in (client_tls(authority), client_tls(authority, stranger)):
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{exporter.url}/-/healthy", trust_env=False, verify=context)


def test_a_flood_of_guesses_is_refused_and_locks_nobody_out() -> None:
    app, right = protect(inner, GUARDED), basic("prometheus", PASSWORD)

    async def go() -> tuple[int, list[int]]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://phasewatch") as client:
            assert (await client.get("/", headers={"Authorization": right})).status_code == 200
            guesses = [client.get("/", headers={"Authorization": basic("prometheus", str(n))}) for n in range(40)]
            right_response = client.get("/", headers={"Authorization": right})
            *guessed, known_answer = await asyncio.gather(*guesses, right_response)
            return known_answer.status_code, [answer.status_code for answer in guessed]

    right_response, guessed = asyncio.run(go())
    assert right_response == 200
    assert set(guessed) == {401, 503}


def test_a_hash_that_bcrypt_cannot_use_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("basic_auth_users:\n  a: $2b$10$" + "/" * 53 + "\n")
    with pytest.raises(ConfigError) as refused:
        load_web_config(file)
    assert str(refused.value.problems[0]).startswith("basic_auth_users.a: expected a bcrypt hash")


def test_no_message_has_a_hash_that_has_become_a_part_of_its_key(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("basic_auth_users: {prometheus:" + HASH + "}\n")
    with pytest.raises(ConfigError) as refused:
        load_web_config(file)
    assert HASH[4:] not in str(refused.value)
