//! Faulty configuration is reported as a whole; valid configuration is read as written.

mod operator_lists;
mod reference;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::database::Server;
use super::*;
use asp_platform::secret::Secret;
use asp_store::postgres::Waits;

fn dev() -> ServeArgs {
    ServeArgs { dev: true, ..ServeArgs::default() }
}

#[test]
fn an_empty_environment_gives_the_documented_defaults() {
    let settings = Settings::read(&dev(), &BTreeMap::new()).unwrap();
    let listen = settings.listen;
    assert_eq!(
        (listen.edge_port, listen.admin_port, listen.gateway_port, listen.xds_port, listen.envoy_admin_port),
        (8080, 8081, 8082, 18000, 9901)
    );
    assert!(listen.bind.is_loopback());
    assert_eq!(settings.database, Database::Sqlite(".asp/asp.db".into()));
    assert_eq!(settings.roles, Roles { control: true, gateway: true });
    assert!(settings.filter_wasm.is_absolute());
    assert_eq!(settings.calls.audit_max_bytes, 1 << 30);
    assert_eq!((settings.calls.bounds().whole, settings.calls.bounds().per_org), (8192, 2048));
    assert_eq!((settings.calls.memory().whole, settings.calls.memory().per_org), (512 << 20, 256 << 20));
}

#[test]
fn every_fault_is_reported_at_once() {
    let environment = BTreeMap::from([
        ("ASP_PORT", "http"),
        ("ASP_XDS_PORT", "70000"),
        ("ASP_PUBLIC_URL", "https://host/path"),
        ("ASP_DATABASE_URL", "mysql://root:hunter2@db"),
        ("ASP_SEAL_KEY", "short"),
        ("ASP_REDIS_URL", "redis://:hunter2@cache:port"),
        ("ASP_ADVERTISE", "gateway-0:8082"),
        ("ASP_POOL", "gateway-pools"),
        ("ASP_DEFAULT_AGENT", "Demo/a2a"),
        ("ASP_TLS_CERT", "cert.pem"),
        ("ASP_UPSTREAMS", "everything.internal"),
        ("ASP_RUNTIMES", "perl=unix:/s"),
        ("ASP_FILTER_WASM", "/nonexistent/filter.wasm"),
    ]);
    let args = ServeArgs {
        roles: Some("control,worker".into()),
        bind: Some("everywhere".into()),
        stack: true,
        ..ServeArgs::default()
    };
    let faults = Settings::read(&args, &environment).unwrap_err();
    let names: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
    for expected in [
        "ASP_PORT",
        "ASP_XDS_PORT",
        "ASP_PUBLIC_URL",
        "ASP_DATABASE_URL",
        "ASP_SEAL_KEY",
        "ASP_REDIS_URL",
        "ASP_ADVERTISE",
        "ASP_POOL",
        "ASP_DEFAULT_AGENT",
        "ASP_TLS_KEY",
        "ASP_UPSTREAMS",
        "ASP_RUNTIMES",
        "ASP_ENVOY_BIN",
        "ASP_FILTER_WASM",
        "--roles",
        "--bind",
        "--stack",
    ] {
        assert!(names.contains(&expected), "{expected} is missing from {names:?}");
    }
    assert!(!format!("{faults:?}").contains("hunter2"), "no secret in a fault");
    let of = |name: &str| faults.iter().filter(|fault| fault.name == name).count();
    assert_eq!(
        (of("ASP_PUBLIC_URL"), of("ASP_SEAL_KEY")),
        (1, 1),
        "a refused value is not missing as well: {names:?}"
    );
}

#[test]
fn production_needs_a_public_url_and_a_seal_key() {
    let faults = Settings::read(&ServeArgs::default(), &BTreeMap::new()).unwrap_err();
    let names: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!(names, ["ASP_PUBLIC_URL", "ASP_SEAL_KEY"]);

    let environment = BTreeMap::from([
        ("ASP_PUBLIC_URL", "https://mcp.example.com"),
        ("ASP_SEAL_KEY", "0123456789abcdef0123456789abcdef"),
    ]);
    let settings = Settings::read(&ServeArgs::default(), &environment).unwrap();
    assert!(!format!("{settings:?}").contains("0123456789abcdef"), "the seal key prints as ***");
}

#[test]
fn development_never_listens_beyond_loopback() {
    let args = ServeArgs { bind: Some("0.0.0.0".into()), ..dev() };
    let faults = Settings::read(&args, &BTreeMap::new()).unwrap_err();
    assert_eq!(faults[0].name, "--bind");
}

#[test]
fn the_stack_listens_where_its_envoy_looks() {
    let args = ServeArgs { stack: true, bind: Some("::1".into()), ..dev() };
    let environment = BTreeMap::from([("ASP_ENVOY_BIN", "/bin/true"), ("ASP_FILTER_WASM", "/bin/true")]);
    let faults = Settings::read(&args, &environment).unwrap_err();
    assert_eq!(faults.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>(), ["--bind"]);
    assert!(Settings::read(&ServeArgs { bind: None, ..args }, &environment).is_ok());
}

#[test]
fn beyond_loopback_subscribers_must_prove_themselves_or_a_mesh_does() {
    let args = ServeArgs { bind: Some("0.0.0.0".into()), ..ServeArgs::default() };
    let mut environment = BTreeMap::from([
        ("ASP_PUBLIC_URL", "https://mcp.example.com"),
        ("ASP_SEAL_KEY", "0123456789abcdef0123456789abcdef"),
    ]);
    let faults = Settings::read(&args, &environment).unwrap_err();
    assert_eq!(faults[0].name, "ASP_PEER_CERT");
    environment.insert("ASP_PEER_PLAINTEXT", "mesh");
    assert!(Settings::read(&args, &environment).unwrap().in_mesh());
    environment.remove("ASP_PEER_PLAINTEXT");
    environment.insert("ASP_PEER_CERT", "cert.pem");
    let faults = Settings::read(&args, &environment).unwrap_err();
    assert!(faults.iter().any(|fault| fault.name == "ASP_PEER_KEY"), "{faults:?}");
    environment.extend([
        ("ASP_PEER_KEY", "key.pem"),
        ("ASP_PEER_CA", "ca.pem"),
        ("ASP_ADMIN_BIND", "127.0.0.1"),
    ]);
    environment.insert("ASP_GATEWAY_MTLS_PORT", "8443");
    assert!(Settings::read(&args, &environment).unwrap().peer.is_some());
}

#[test]
fn nothing_is_in_clear_beyond_loopback_unless_a_mesh_encrypts() {
    let args = ServeArgs { bind: Some("0.0.0.0".into()), ..ServeArgs::default() };
    let mut environment = BTreeMap::from([
        ("ASP_PUBLIC_URL", "https://mcp.example.com"),
        ("ASP_SEAL_KEY", "0123456789abcdef0123456789abcdef"),
    ]);
    let names = |environment: &BTreeMap<&str, &str>| match Settings::read(&args, environment) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.into_iter().map(|fault| fault.name).collect(),
    };
    assert_eq!(names(&environment), ["ASP_PEER_CERT", "ASP_ADMIN_TLS_CERT", "ASP_GATEWAY_MTLS_PORT"]);
    environment.extend([("ASP_ADMIN_BIND", "0.0.0.0"), ("ASP_GATEWAY_BIND", "0.0.0.0")]);
    environment.extend([
        ("ASP_PEER_CERT", "cert.pem"),
        ("ASP_PEER_KEY", "key.pem"),
        ("ASP_PEER_CA", "ca.pem"),
    ]);
    assert_eq!(names(&environment), ["ASP_ADMIN_TLS_CERT", "ASP_GATEWAY_MTLS_PORT"], "not by name either");
    let mut in_a_mesh = environment.clone();
    in_a_mesh.insert("ASP_PEER_PLAINTEXT", "mesh");
    assert!(!Settings::read(&args, &in_a_mesh).unwrap().requires_mutual_tls());
    let mut here = environment.clone();
    here.extend([("ASP_ADMIN_BIND", "127.0.0.1"), ("ASP_GATEWAY_BIND", "::1")]);
    assert!(!Settings::read(&args, &here).unwrap().requires_mutual_tls());
    environment.insert("ASP_ADMIN_TLS_CERT", "cert.pem");
    assert_eq!(names(&environment), ["ASP_ADMIN_TLS_KEY", "ASP_ADMIN_TLS_CERT", "ASP_GATEWAY_MTLS_PORT"]);
    environment.extend([("ASP_ADMIN_TLS_KEY", "key.pem"), ("ASP_GATEWAY_MTLS_PORT", "8443")]);
    let settings = Settings::read(&args, &environment).unwrap();
    assert!(settings.requires_mutual_tls() && settings.admin_tls.is_some());
    // It applies to a process with only the gateway role too.
    let alone = ServeArgs { roles: Some("gateway".into()), ..args.clone() };
    environment.insert("ASP_XDS_URL", "https://asp-control:18000");
    assert!(Settings::read(&alone, &environment).unwrap().requires_mutual_tls());
    environment.remove("ASP_GATEWAY_MTLS_PORT");
    let faults = Settings::read(&alone, &environment).unwrap_err();
    assert_eq!(faults.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>(), ["ASP_GATEWAY_MTLS_PORT"]);
}

#[test]
fn a_list_of_revoked_certificates_needs_certificates() {
    let faults = Settings::read(&dev(), &BTreeMap::from([("ASP_PEER_CRL", "crl.pem")])).unwrap_err();
    assert_eq!(faults[0].name, "ASP_PEER_CRL");
}

#[test]
fn every_listener_may_have_an_address_of_its_own() {
    let mut environment = BTreeMap::from([("ASP_XDS_BIND", "127.0.0.2"), ("ASP_GATEWAY_BIND", "::1")]);
    let listen = Settings::read(&dev(), &environment).unwrap().listen;
    assert_eq!([listen.bind, listen.admin()], [IpAddr::V4(Ipv4Addr::LOCALHOST); 2]);
    assert_eq!((listen.xds().to_string(), listen.gateway().to_string()), ("127.0.0.2".into(), "::1".into()));
    environment.extend([("ASP_XDS_BIND", "0.0.0.0"), ("ASP_GATEWAY_BIND", "everywhere")]);
    let faults = Settings::read(&dev(), &environment).unwrap_err();
    let names: Vec<_> = faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!(names, ["ASP_GATEWAY_BIND", "ASP_XDS_BIND"]);
}

#[test]
fn a_gateway_alone_must_be_told_where_the_control_plane_is() {
    let args = ServeArgs { roles: Some("gateway".into()), ..dev() };
    let faults = Settings::read(&args, &BTreeMap::new()).unwrap_err();
    assert_eq!(faults[0].name, "ASP_XDS_URL");
    let environment = BTreeMap::from([("ASP_XDS_URL", "http://127.0.0.1:18000")]);
    assert!(!Settings::read(&args, &environment).unwrap().roles.control);
    for nobody in [",", " "] {
        let faults = Settings::read(&args, &BTreeMap::from([("ASP_XDS_URL", nobody)])).unwrap_err();
        let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
        assert_eq!(messages, ["must name a control plane"], "{nobody:?}");
    }
}

#[test]
fn the_database_is_a_file_memory_or_a_server_whose_url_is_never_shown() {
    let server = |url: &str| {
        let url = Secret::new(url.into());
        Database::Postgres(Server { url, connections: 16, waits: Waits::default(), spool_bytes: 64 << 20 })
    };
    for (url, expected) in [
        ("postgres://asp:hunter2@db/asp", server("postgres://asp:hunter2@db/asp")),
        (
            "postgresql://asp@db/asp?sslmode=verify-full",
            server("postgresql://asp@db/asp?sslmode=verify-full"),
        ),
        ("sqlite::memory:", Database::Memory),
        ("sqlite:///var/lib/asp.db", Database::Sqlite("/var/lib/asp.db".into())),
        ("sqlite:asp.db", Database::Sqlite("asp.db".into())),
    ] {
        let environment = BTreeMap::from([("ASP_DATABASE_URL", url)]);
        let database = Settings::read(&dev(), &environment).unwrap().database;
        assert_eq!(database, expected, "{url}");
        assert!(!format!("{database:?}").contains("hunter2"));
    }
}

#[test]
fn the_waits_for_a_database_are_within_reason() {
    let url = ("ASP_DATABASE_URL", "postgres://asp@db/asp");
    let read = |more: &[(&'static str, &'static str)]| {
        let environment = BTreeMap::from_iter([url].into_iter().chain(more.iter().copied()));
        Settings::read(&dev(), &environment).map(|settings| settings.database)
    };
    let Ok(Database::Postgres(server)) = read(&[
        ("ASP_DATABASE_STATEMENT_TIMEOUT_MS", "800"),
        ("ASP_DATABASE_LOCK_TIMEOUT_MS", "200"),
        ("ASP_DATABASE_POOL_TIMEOUT_MS", "1000"),
    ]) else {
        panic!("settings within reason are taken");
    };
    let waits = [server.waits.statement, server.waits.lock, server.waits.acquire];
    assert_eq!(waits.map(|wait| wait.as_millis()), [800, 200, 1_000]);
    for (faulty, named) in [
        (
            [("ASP_DATABASE_STATEMENT_TIMEOUT_MS", "0"), ("ASP_DATABASE_LOCK_TIMEOUT_MS", "200")],
            "ASP_DATABASE_STATEMENT_TIMEOUT_MS",
        ),
        (
            [("ASP_DATABASE_STATEMENT_TIMEOUT_MS", "800"), ("ASP_DATABASE_LOCK_TIMEOUT_MS", "800")],
            "ASP_DATABASE_LOCK_TIMEOUT_MS",
        ),
        (
            [("ASP_DATABASE_POOL_TIMEOUT_MS", "5s"), ("ASP_DATABASE_LOCK_TIMEOUT_MS", "200")],
            "ASP_DATABASE_POOL_TIMEOUT_MS",
        ),
        (
            [("ASP_AUDIT_SPOOL_BYTES", "1000"), ("ASP_DATABASE_LOCK_TIMEOUT_MS", "200")],
            "ASP_AUDIT_SPOOL_BYTES",
        ),
    ] {
        let faults = read(&faulty).unwrap_err();
        assert!(faults.len() == 1 && faults[0].name == named, "{faults:?}");
    }
}

#[cfg(feature = "cluster")]
#[test]
fn the_events_of_all_orgs_have_a_bound_within_reason() {
    let read = |bytes: &'static str| {
        let environment =
            BTreeMap::from([("ASP_REDIS_URL", "redis://127.0.0.1"), ("ASP_REDIS_EVENT_BYTES", bytes)]);
        Settings::read(&dev(), &environment).map(|settings| settings.gateway.redis_event_bytes)
    };
    assert_eq!(read("268435456").unwrap(), 256 << 20);
    for faulty in ["0", "134217727", "1GiB"] {
        let faults = read(faulty).unwrap_err();
        assert!(faults.len() == 1 && faults[0].name == "ASP_REDIS_EVENT_BYTES", "{faults:?}");
    }
}

#[test]
fn runtimes_are_given_by_language() {
    let read = |text: &str| {
        let environment = BTreeMap::from([("ASP_RUNTIMES", text)]);
        Settings::read(&dev(), &environment).map(|settings| settings.gateway.runtimes)
    };
    let runtimes = read("python+node=unix:/run/a.sock,java=unix:/run/b.sock").unwrap();
    assert_eq!(runtimes[0].languages, ["python", "node"]);
    assert_eq!(runtimes[1].url, "unix:/run/b.sock");
    let runtimes = read("python=unix:/a,python+node=unix:/b").unwrap();
    assert_eq!(
        (runtimes.len(), runtimes[1].languages.as_slice()),
        (2, ["python".into(), "node".into()].as_slice())
    );
    let many = |count: usize| (0..count).map(|n| format!("java=unix:/{n}")).collect::<Vec<_>>().join(",");
    assert!(read(&many(64)).is_ok() && read(&many(65)).is_err());
    for bad in [
        "python",
        "python=",
        "python=/run/a.sock",
        "python=unix:a.sock",
        "python=http://127.0.0.1:1",
        "=unix:/a",
        "python=unix:/a,node+python=unix:/a",
        // Requires the certificates.
        "python=https://runtime:1",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_gateways_door_for_envoys_needs_a_certificate_and_the_role() {
    let peer = [("ASP_PEER_CERT", "cert.pem"), ("ASP_PEER_KEY", "key.pem"), ("ASP_PEER_CA", "ca.pem")];
    let with = |port: &'static str, peer: &[(&'static str, &'static str)]| {
        BTreeMap::from_iter([("ASP_GATEWAY_MTLS_PORT", port)].into_iter().chain(peer.iter().copied()))
    };
    let settings = Settings::read(&dev(), &with("8083", &peer)).unwrap();
    assert_eq!(settings.listen.gateway_mtls_port, Some(8083));
    assert_eq!(Settings::read(&dev(), &BTreeMap::new()).unwrap().listen.gateway_mtls_port, None);
    let control = ServeArgs { roles: Some("control".into()), ..dev() };
    for (args, environment, named) in [
        (dev(), with("8083", &[]), "ASP_PEER_CERT"),
        (dev(), with("many", &peer), "ASP_GATEWAY_MTLS_PORT"),
        (control, with("8083", &peer), "ASP_GATEWAY_MTLS_PORT"),
        (ServeArgs { stack: true, ..dev() }, with("8083", &peer), "ASP_GATEWAY_MTLS_PORT"),
    ] {
        let faults = Settings::read(&args, &environment).unwrap_err();
        assert!(faults.iter().any(|fault| fault.name == named), "{faults:?}");
    }
}

#[test]
fn a_shared_store_that_is_set_and_empty_is_a_fault() {
    for name in ["ASP_DATABASE_URL", "ASP_REDIS_URL", "ASP_S3_URL"] {
        for empty in ["", " "] {
            let environment = BTreeMap::from([(name, empty)]);
            let faults = Settings::read(&dev(), &environment).unwrap_err();
            assert!(
                faults.iter().any(|fault| fault.name == name && fault.message.contains("empty")),
                "{name}"
            );
        }
    }
}

#[test]
fn a_pool_has_a_name_that_routes_can_say() {
    let read = |pool: &str| Settings::read(&dev(), &BTreeMap::from([("ASP_POOL", pool)]));
    for pool in ["gateway", "heavy-2", "0", &"p".repeat(63)] {
        assert_eq!(read(pool).unwrap().gateway.pool, pool);
    }
    for pool in ["Heavy", "a b", "a_b", "no.pool", "*", "gateway-pools", "p\u{e4}", " a", &"p".repeat(64)] {
        let faults = read(pool).unwrap_err();
        assert_eq!(faults.len(), 1, "{pool}: {faults:?}");
        assert_eq!(faults[0].name, "ASP_POOL", "{pool}");
    }
}
