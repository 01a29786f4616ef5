//! Faulty configuration is reported as a whole; valid configuration is read as written.

mod operator_lists;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::database::{
    ENV_AUDIT_SPOOL, ENV_DATABASE_LOCK, ENV_DATABASE_POOL, ENV_DATABASE_STATEMENT, ENV_DATABASE_URL, Server,
};
use super::gateway::{
    ENV_ADVERTISE, ENV_POOL, ENV_REDIS_EVENT_BYTES, ENV_REDIS_URL, ENV_SEAL_KEY, ENV_XDS_URL,
};
use super::listen::{
    ENV_ADMIN_BIND, ENV_GATEWAY_BIND, ENV_GATEWAY_MTLS_PORT, ENV_PORT, ENV_XDS_BIND, ENV_XDS_PORT,
};
use super::runtimes::ENV_RUNTIMES;
use super::s3::ENV_S3_URL;
use super::stack::ENV_ENVOY_BIN;
use super::tls::{
    ENV_ADMIN_TLS_CERT, ENV_ADMIN_TLS_KEY, ENV_PEER_CA, ENV_PEER_CERT, ENV_PEER_CRL, ENV_PEER_KEY,
    ENV_PEER_PLAINTEXT, ENV_TLS_CERT, ENV_TLS_KEY,
};
use super::*;
use crate::args::environment::ENVIRONMENT_HELP;
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
    assert_eq!((settings.calls.bounds.whole, settings.calls.bounds.per_org), (8192, 2048));
    assert_eq!((settings.calls.memory.whole, settings.calls.memory.per_org), (512 << 20, 256 << 20));
}

#[test]
fn every_fault_is_reported_at_once() {
    let environment = BTreeMap::from([
        (ENV_PORT, "http"),
        (ENV_XDS_PORT, "70000"),
        (ENV_PUBLIC_URL, "https://host/path"),
        (ENV_DATABASE_URL, "mysql://root:hunter2@db"),
        (ENV_SEAL_KEY, "short"),
        (ENV_REDIS_URL, "redis://:hunter2@cache:port"),
        (ENV_ADVERTISE, "gateway-0:8082"),
        (ENV_POOL, "gateway-pools"),
        (ENV_TLS_CERT, "cert.pem"),
        (ENV_UPSTREAMS, "everything.internal"),
        (ENV_RUNTIMES, "perl=unix:/s"),
        (ENV_FILTER_WASM, "/nonexistent/filter.wasm"),
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
        ENV_PORT,
        ENV_XDS_PORT,
        ENV_PUBLIC_URL,
        ENV_DATABASE_URL,
        ENV_SEAL_KEY,
        ENV_REDIS_URL,
        ENV_ADVERTISE,
        ENV_POOL,
        ENV_TLS_KEY,
        ENV_UPSTREAMS,
        ENV_RUNTIMES,
        ENV_ENVOY_BIN,
        ENV_FILTER_WASM,
        "--roles",
        "--bind",
        "--stack",
    ] {
        assert!(names.contains(&expected), "{expected} is missing from {names:?}");
    }
    assert!(!format!("{faults:?}").contains("hunter2"), "no secret in a fault");
}

#[test]
fn production_needs_a_public_url_and_a_seal_key() {
    let faults = Settings::read(&ServeArgs::default(), &BTreeMap::new()).unwrap_err();
    let names: Vec<&str> = faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!(names, [ENV_PUBLIC_URL, ENV_SEAL_KEY]);

    let environment = BTreeMap::from([
        (ENV_PUBLIC_URL, "https://mcp.example.com"),
        (ENV_SEAL_KEY, "0123456789abcdef0123456789abcdef"),
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
    let environment = BTreeMap::from([(ENV_ENVOY_BIN, "/bin/true"), (ENV_FILTER_WASM, "/bin/true")]);
    let faults = Settings::read(&args, &environment).unwrap_err();
    assert_eq!(faults.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>(), ["--bind"]);
    assert!(Settings::read(&ServeArgs { bind: None, ..args }, &environment).is_ok());
}

#[test]
fn beyond_loopback_subscribers_must_prove_themselves_or_a_mesh_does() {
    let args = ServeArgs { bind: Some("0.0.0.0".into()), ..ServeArgs::default() };
    let mut environment = BTreeMap::from([
        (ENV_PUBLIC_URL, "https://mcp.example.com"),
        (ENV_SEAL_KEY, "0123456789abcdef0123456789abcdef"),
    ]);
    let faults = Settings::read(&args, &environment).unwrap_err();
    assert_eq!(faults[0].name, ENV_PEER_CERT);
    environment.insert(ENV_PEER_PLAINTEXT, "mesh");
    assert!(Settings::read(&args, &environment).unwrap().mesh);
    environment.remove(ENV_PEER_PLAINTEXT);
    environment.insert(ENV_PEER_CERT, "cert.pem");
    let faults = Settings::read(&args, &environment).unwrap_err();
    assert!(faults.iter().any(|fault| fault.name == ENV_PEER_KEY), "{faults:?}");
    environment.extend([(ENV_PEER_KEY, "key.pem"), (ENV_PEER_CA, "ca.pem"), (ENV_ADMIN_BIND, "127.0.0.1")]);
    environment.insert(ENV_GATEWAY_MTLS_PORT, "8443");
    assert!(Settings::read(&args, &environment).unwrap().peer.is_some());
}

#[test]
fn nothing_is_in_clear_beyond_loopback_unless_a_mesh_encrypts() {
    let args = ServeArgs { bind: Some("0.0.0.0".into()), ..ServeArgs::default() };
    let mut environment = BTreeMap::from([
        (ENV_PUBLIC_URL, "https://mcp.example.com"),
        (ENV_SEAL_KEY, "0123456789abcdef0123456789abcdef"),
    ]);
    let names = |environment: &BTreeMap<&str, &str>| match Settings::read(&args, environment) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.into_iter().map(|fault| fault.name).collect(),
    };
    assert_eq!(names(&environment), [ENV_PEER_CERT, ENV_ADMIN_TLS_CERT, ENV_GATEWAY_MTLS_PORT]);
    environment.extend([(ENV_ADMIN_BIND, "0.0.0.0"), (ENV_GATEWAY_BIND, "0.0.0.0")]);
    environment.extend([(ENV_PEER_CERT, "cert.pem"), (ENV_PEER_KEY, "key.pem"), (ENV_PEER_CA, "ca.pem")]);
    assert_eq!(names(&environment), [ENV_ADMIN_TLS_CERT, ENV_GATEWAY_MTLS_PORT], "not by name either");
    let mut in_a_mesh = environment.clone();
    in_a_mesh.insert(ENV_PEER_PLAINTEXT, "mesh");
    assert!(!Settings::read(&args, &in_a_mesh).unwrap().proved_alone());
    let mut here = environment.clone();
    here.extend([(ENV_ADMIN_BIND, "127.0.0.1"), (ENV_GATEWAY_BIND, "::1")]);
    assert!(!Settings::read(&args, &here).unwrap().proved_alone());
    environment.insert(ENV_ADMIN_TLS_CERT, "cert.pem");
    assert_eq!(names(&environment), [ENV_ADMIN_TLS_KEY, ENV_ADMIN_TLS_CERT, ENV_GATEWAY_MTLS_PORT]);
    environment.extend([(ENV_ADMIN_TLS_KEY, "key.pem"), (ENV_GATEWAY_MTLS_PORT, "8443")]);
    let settings = Settings::read(&args, &environment).unwrap();
    assert!(settings.proved_alone() && settings.admin_tls.is_some());
    // It applies to a process with only the gateway role too.
    let alone = ServeArgs { roles: Some("gateway".into()), ..args.clone() };
    environment.insert(ENV_XDS_URL, "https://asp-control:18000");
    assert!(Settings::read(&alone, &environment).unwrap().proved_alone());
    environment.remove(ENV_GATEWAY_MTLS_PORT);
    let faults = Settings::read(&alone, &environment).unwrap_err();
    assert_eq!(faults.iter().map(|fault| fault.name.as_str()).collect::<Vec<_>>(), [ENV_GATEWAY_MTLS_PORT]);
}

#[test]
fn a_list_of_revoked_certificates_needs_certificates() {
    let faults = Settings::read(&dev(), &BTreeMap::from([(ENV_PEER_CRL, "crl.pem")])).unwrap_err();
    assert_eq!(faults[0].name, ENV_PEER_CRL);
}

#[test]
fn every_listener_may_have_an_address_of_its_own() {
    let mut environment = BTreeMap::from([(ENV_XDS_BIND, "127.0.0.2"), (ENV_GATEWAY_BIND, "::1")]);
    let listen = Settings::read(&dev(), &environment).unwrap().listen;
    assert_eq!([listen.bind, listen.admin], [IpAddr::V4(Ipv4Addr::LOCALHOST); 2]);
    assert_eq!((listen.xds.to_string(), listen.gateway.to_string()), ("127.0.0.2".into(), "::1".into()));
    environment.extend([(ENV_XDS_BIND, "0.0.0.0"), (ENV_GATEWAY_BIND, "everywhere")]);
    let faults = Settings::read(&dev(), &environment).unwrap_err();
    let names: Vec<_> = faults.iter().map(|fault| fault.name.as_str()).collect();
    assert_eq!(names, [ENV_GATEWAY_BIND, ENV_XDS_BIND]);
}

#[test]
fn a_gateway_alone_must_be_told_where_the_control_plane_is() {
    let args = ServeArgs { roles: Some("gateway".into()), ..dev() };
    let faults = Settings::read(&args, &BTreeMap::new()).unwrap_err();
    assert_eq!(faults[0].name, ENV_XDS_URL);
    let environment = BTreeMap::from([(ENV_XDS_URL, "http://127.0.0.1:18000")]);
    assert!(!Settings::read(&args, &environment).unwrap().roles.control);
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
        let environment = BTreeMap::from([(ENV_DATABASE_URL, url)]);
        let database = Settings::read(&dev(), &environment).unwrap().database;
        assert_eq!(database, expected, "{url}");
        assert!(!format!("{database:?}").contains("hunter2"));
    }
}

#[test]
fn the_waits_for_a_database_are_within_reason() {
    let url = (ENV_DATABASE_URL, "postgres://asp@db/asp");
    let read = |more: &[(&'static str, &'static str)]| {
        let environment = BTreeMap::from_iter([url].into_iter().chain(more.iter().copied()));
        Settings::read(&dev(), &environment).map(|settings| settings.database)
    };
    let Ok(Database::Postgres(server)) =
        read(&[(ENV_DATABASE_STATEMENT, "800"), (ENV_DATABASE_LOCK, "200"), (ENV_DATABASE_POOL, "1000")])
    else {
        panic!("settings within reason are taken");
    };
    let waits = [server.waits.statement, server.waits.lock, server.waits.acquire];
    assert_eq!(waits.map(|wait| wait.as_millis()), [800, 200, 1_000]);
    for (faulty, named) in [
        ([(ENV_DATABASE_STATEMENT, "0"), (ENV_DATABASE_LOCK, "200")], ENV_DATABASE_STATEMENT),
        ([(ENV_DATABASE_STATEMENT, "800"), (ENV_DATABASE_LOCK, "800")], ENV_DATABASE_LOCK),
        ([(ENV_DATABASE_POOL, "5s"), (ENV_DATABASE_LOCK, "200")], ENV_DATABASE_POOL),
        ([(ENV_AUDIT_SPOOL, "1000"), (ENV_DATABASE_LOCK, "200")], ENV_AUDIT_SPOOL),
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
            BTreeMap::from([(ENV_REDIS_URL, "redis://127.0.0.1"), (ENV_REDIS_EVENT_BYTES, bytes)]);
        Settings::read(&dev(), &environment).map(|settings| settings.gateway.redis.unwrap().event_bytes)
    };
    assert_eq!(read("268435456").unwrap(), 256 << 20);
    for faulty in ["0", "134217727", "1GiB"] {
        let faults = read(faulty).unwrap_err();
        assert!(faults.len() == 1 && faults[0].name == ENV_REDIS_EVENT_BYTES, "{faults:?}");
    }
}

#[test]
fn the_help_names_every_variable() {
    let source = [
        include_str!("../settings.rs"),
        include_str!("calls.rs"),
        include_str!("database.rs"),
        include_str!("delegates.rs"),
        include_str!("gateway.rs"),
        include_str!("listen.rs"),
        include_str!("runtimes.rs"),
        include_str!("s3.rs"),
        include_str!("stack.rs"),
        include_str!("tls.rs"),
    ]
    .concat();
    let names = source.split('"').filter(|text| text.starts_with("ASP_") && !text.contains(' '));
    let mut count = 0;
    for name in names {
        assert!(ENVIRONMENT_HELP.contains(name), "{name} is missing");
        count += 1;
    }
    assert!(count > 40, "{count} names were found");
}

#[test]
fn runtimes_are_given_by_language() {
    let read = |text: &str| {
        let environment = BTreeMap::from([(ENV_RUNTIMES, text)]);
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
    let peer = [(ENV_PEER_CERT, "cert.pem"), (ENV_PEER_KEY, "key.pem"), (ENV_PEER_CA, "ca.pem")];
    let with = |port: &'static str, peer: &[(&'static str, &'static str)]| {
        BTreeMap::from_iter([(ENV_GATEWAY_MTLS_PORT, port)].into_iter().chain(peer.iter().copied()))
    };
    let settings = Settings::read(&dev(), &with("8083", &peer)).unwrap();
    assert_eq!(settings.listen.gateway_mtls_port, Some(8083));
    assert_eq!(Settings::read(&dev(), &BTreeMap::new()).unwrap().listen.gateway_mtls_port, None);
    let control = ServeArgs { roles: Some("control".into()), ..dev() };
    for (args, environment, named) in [
        (dev(), with("8083", &[]), ENV_PEER_CERT),
        (dev(), with("many", &peer), ENV_GATEWAY_MTLS_PORT),
        (control, with("8083", &peer), ENV_GATEWAY_MTLS_PORT),
        (ServeArgs { stack: true, ..dev() }, with("8083", &peer), ENV_GATEWAY_MTLS_PORT),
    ] {
        let faults = Settings::read(&args, &environment).unwrap_err();
        assert!(faults.iter().any(|fault| fault.name == named), "{faults:?}");
    }
}

#[test]
fn a_shared_store_that_is_set_and_empty_is_a_fault() {
    for name in [ENV_DATABASE_URL, ENV_REDIS_URL, ENV_S3_URL] {
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
    let read = |pool: &str| Settings::read(&dev(), &BTreeMap::from([(ENV_POOL, pool)]));
    for pool in ["gateway", "heavy-2", "0", &"p".repeat(63)] {
        assert_eq!(read(pool).unwrap().gateway.pool, pool);
    }
    for pool in ["Heavy", "a b", "a_b", "no.pool", "*", "gateway-pools", "p\u{e4}", " a", &"p".repeat(64)] {
        let faults = read(pool).unwrap_err();
        assert_eq!(faults.len(), 1, "{pool}: {faults:?}");
        assert_eq!(faults[0].name, ENV_POOL, "{pool}");
    }
}
