//! The settings as a whole: their faults, and the page that lists them.

use asp_platform::reference;
use clap::{CommandFactory, FromArgMatches};

use super::*;

/// Parses arguments without the environment.
fn parse(extra: &[&str]) -> Result<Settings, Vec<String>> {
    let command = Arguments::command().mut_args(|argument| argument.env(None));
    let matches = command.try_get_matches_from([&["asp-runtime"], extra].concat()).unwrap();
    Settings::read(Arguments::from_arg_matches(&matches).unwrap())
}

/// The other part of the page is that of `asp`.
#[test]
fn the_page_is_the_generated_one() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let written = std::fs::read_to_string(&page).unwrap();
    let declared = reference::declared(&Arguments::command());
    let generated = reference::with_tables(&written, "asp-runtime", &declared).unwrap();
    if std::env::var_os("ASP_UPDATE_GOLDEN").is_some() {
        std::fs::write(&page, &generated).unwrap();
    }
    assert!(
        std::fs::read_to_string(&page).unwrap() == generated,
        "docs/settings.md has drifted from the declared settings; regenerate it with\n\
         ASP_UPDATE_GOLDEN=1 cargo test -p asp-runtime --lib the_page_is_the_generated_one"
    );
}

#[test]
fn every_fault_is_listed() {
    let faults = parse(&[
        "--plugins",
        "/nonexistent",
        "--state",
        "/proc/nope",
        "--min-level",
        "4",
        "--bounds",
        "none",
        "--max-workers",
        "0",
        "--threads",
        "65",
        "--listen",
        "127.0.0.1:0",
        "--worker-init",
        "/nonexistent",
        "--python",
        "/nonexistent",
        "--java",
        "/bin/sh",
        "--memory-budget",
        "1",
        "--egress-allow-private",
        "crm.internal=10.0.0.0/8;for=crm/*,a.internal=0.0.0.0/0;for=*",
    ])
    .unwrap_err();
    for wanted in [
        "--plugins",
        "--state",
        "--min-level",
        "--bounds",
        "--max-workers",
        "--threads",
        "--tls-cert",
        "--tls-key",
        "--tls-client-ca",
        "--worker-init",
        "ASP_PLUGIN_PYTHON",
        "ASP_PLUGIN_JAVA_SHIM",
        "--memory-budget",
        "--egress-allow-private a.internal=0.0.0.0/0",
    ] {
        assert!(faults.iter().any(|fault| fault.contains(wanted)), "{wanted}: {faults:?}");
    }
}

#[test]
fn private_networks_without_a_name_or_for_are_refused_with_the_line_to_paste() {
    let routes = |text: &str| {
        let mut faults = Vec::new();
        let routes = private_routes(&[text.to_owned()], &mut faults);
        if faults.is_empty() { Ok(routes) } else { Err(faults) }
    };
    let faults =
        routes("10.20.0.0/16,crm.internal=fd00:20::/48,erp.internal=10.9.0.0/16;for=erp/*").unwrap_err();
    let line = "ASP_RUNTIME_EGRESS_ALLOW_PRIVATE='NAME=10.20.0.0/16;for=SERVER/PRIMITIVE,\
                crm.internal=fd00:20::/48;for=SERVER/PRIMITIVE,erp.internal=10.9.0.0/16;for=erp/*'";
    assert!(faults.len() == 1 && faults[0].contains(line), "{faults:?}");
    assert!(routes("10.20.0.0/16;for=*").is_err());
    assert!(routes("crm.internal=10.20.0.0/16;for=crm").is_err());
    assert_eq!(routes("").unwrap(), []);
    let listed = routes("crm.internal=10.20.0.0/16;for=crm/* ops/find,b.internal=10.0.0.0/8;for=").unwrap();
    let serves: Vec<bool> = listed.iter().map(|route| route.serves("ops/find")).collect();
    assert_eq!(serves, [true, false]);
}

#[test]
fn a_socket_and_two_directories_are_enough() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let state = dir.path().join("state");
    let settings = parse(&[
        "--plugins",
        path,
        "--state",
        state.to_str().unwrap(),
        "--socket",
        "/tmp/s",
        "--worker-init",
        "/bin/sh",
    ])
    .unwrap();
    assert_eq!((settings.min_level, settings.bounds), (Level::L3, Bounds::Cgroup));
    assert!(settings.memory_budget > 1 << 20 && settings.languages.python.is_none());
}
