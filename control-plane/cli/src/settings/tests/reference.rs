//! The reference page lists every setting with its default and help, and few settings are needed.

use asp_platform::reference;

use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
/// Set to write the page instead of comparing it.
const UPDATE: &str = "ASP_UPDATE_GOLDEN";
const KEY: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn the_page_is_the_generated_one() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let generated = reference::with_tables(&page, "asp", &reference::declared(&command())).unwrap();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(PAGE, &generated).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap();
    assert!(
        written == generated,
        "docs/settings.md has drifted from the declared settings; regenerate it with\n\
         {UPDATE}=1 cargo test -p asp --lib the_page_is_the_generated_one"
    );
}

#[test]
fn every_name_in_these_files_is_a_declared_setting() {
    let declared: Vec<String> = reference::declared(&command()).into_iter().map(|one| one.name).collect();
    let source = [
        include_str!("../../settings.rs"),
        include_str!("../calls.rs"),
        include_str!("../credentials.rs"),
        include_str!("../cross_checks.rs"),
        include_str!("../database.rs"),
        include_str!("../delegates.rs"),
        include_str!("../dev.rs"),
        include_str!("../gateway.rs"),
        include_str!("../kafka.rs"),
        include_str!("../listen.rs"),
        include_str!("../s3.rs"),
        include_str!("../source.rs"),
        include_str!("../stack.rs"),
        include_str!("../tls.rs"),
        include_str!("../vault.rs"),
        include_str!("../../commands/config.rs"),
    ]
    .concat();
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let names = source.split(|c| !is_part(c)).filter(|word| word.starts_with("ASP_") && !word.ends_with('_'));
    let mut count = 0;
    for name in names {
        assert!(declared.iter().any(|one| one == name), "{name} is not declared");
        count += 1;
    }
    assert!(count > 100, "{count} names were found");
    assert!(declared.len() > 70, "{} settings are declared", declared.len());
}

/// `asp config` and help texts print the value of every other setting.
#[test]
fn every_setting_that_is_a_secret_hides_its_value() {
    let source = [
        include_str!("../../settings.rs"),
        include_str!("../database.rs"),
        include_str!("../delegates.rs"),
        include_str!("../gateway.rs"),
        include_str!("../kafka.rs"),
        include_str!("../s3.rs"),
        include_str!("../vault.rs"),
    ]
    .concat();
    let mut count = 0;
    for declaration in source.split("#[arg(").skip(1) {
        let (attributes, rest) = declaration.split_once("]\n").unwrap();
        let field = rest.lines().next().unwrap_or_default();
        if field.contains("<Secret>") {
            assert!(attributes.contains("hide_env_values = true"), "{field}");
            count += 1;
        }
    }
    assert!(count >= 7, "{count} secrets were found");
}

#[test]
fn every_setting_has_a_help_and_its_parser_takes_its_default() {
    for setting in reference::declared(&command()) {
        assert!(!setting.help.is_empty(), "{}", setting.name);
        assert!(!setting.help.contains('|'), "a cell of a table: {}", setting.help);
    }
    let environment = BTreeMap::new();
    assert!(Settings::read(&dev(), &environment).is_ok() && StateSettings::read(&environment).is_ok());
}

/// Docs state the same numbers: docs/operations.md, "Settings that are needed".
#[test]
fn one_machine_needs_at_most_five_settings_and_a_cluster_twelve() {
    // The fifth is ASP_ISSUERS, unless the issuers are stored by the admin API.
    let machine = BTreeMap::from([
        ("ASP_PUBLIC_URL", "https://mcp.example.com"),
        ("ASP_SEAL_KEY", KEY),
        ("ASP_STATE_DIR", "/var/lib/asp"),
        ("ASP_RUNTIMES", "python+node+java=unix:/run/asp/runtime.sock"),
    ]);
    assert!(Settings::read(&ServeArgs::default(), &machine).is_ok());

    let shared = [
        ("ASP_PUBLIC_URL", "https://mcp.example.com"),
        ("ASP_DATABASE_URL", "postgres://asp@db/asp?sslmode=verify-full"),
        ("ASP_PEER_CERT", "/etc/asp/tls.crt"),
        ("ASP_PEER_KEY", "/etc/asp/tls.key"),
        ("ASP_PEER_CA", "/etc/asp/ca.crt"),
    ];
    let of_control = [("ASP_XDS_BIND", "10.0.0.1")];
    let of_gateway = [
        ("ASP_SEAL_KEY", KEY),
        ("ASP_REDIS_URL", "rediss://cache:6379"),
        ("ASP_XDS_URL", "https://asp-control:18000"),
        ("ASP_GATEWAY_BIND", "10.0.0.2"),
        ("ASP_GATEWAY_MTLS_PORT", "8443"),
        ("ASP_RUNTIMES", "python=https://asp-runtime-python:8443"),
    ];
    assert!(shared.len() + of_control.len() + of_gateway.len() <= 12);
    let read = |role: &str, own: &[(&'static str, &'static str)]| {
        let environment = BTreeMap::from_iter(shared.into_iter().chain(own.iter().copied()));
        Settings::read(&ServeArgs { roles: Some(role.into()), ..ServeArgs::default() }, &environment)
    };
    assert!(read("control", &of_control).is_ok());
    #[cfg(feature = "cluster")]
    assert!(read("gateway", &of_gateway).is_ok());
}
