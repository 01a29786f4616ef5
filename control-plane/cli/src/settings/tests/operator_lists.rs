//! Operator lists name the primitives they apply to (I-12).

use super::*;
use crate::settings::source::Coverage;

const PRODUCTION: [(&str, &str); 2] =
    [("ASP_PUBLIC_URL", "https://mcp.example.com"), ("ASP_SEAL_KEY", "0123456789abcdef0123456789abcdef")];

fn upstreams(value: &str, args: &ServeArgs) -> Result<Settings, Vec<SettingFault>> {
    let environment: BTreeMap<&str, &str> =
        PRODUCTION.into_iter().filter(|_| !args.dev).chain([("ASP_UPSTREAMS", value)]).collect();
    Settings::read(args, &environment)
}

#[test]
fn a_list_without_for_is_refused_with_the_lines_to_paste_and_serves_all_in_development() {
    let value = "crm=http://10.0.0.5:8080/v1,erp=http://10.0.0.6;for=erp/* ops/find";
    let faults = upstreams(value, &ServeArgs::default()).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    let line = "ASP_UPSTREAMS='crm=http://10.0.0.5:8080/v1;for=SERVER/PRIMITIVE,erp=http://10.0.0.6;for=erp/* ops/find'";
    assert!(faults[0].to_string().contains(line), "{faults:?}");

    // Completed, the suggested line is accepted by a start.
    let pasted =
        line.trim_start_matches("ASP_UPSTREAMS=").trim_matches('\'').replace("SERVER/PRIMITIVE", "crm/*");
    let settings = upstreams(&pasted, &ServeArgs::default()).unwrap();
    let entry = |name: &str, url: &str, patterns: &[&str]| Upstream {
        name: name.into(),
        url: url.into(),
        primitives: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
    };
    let erp = entry("erp", "http://10.0.0.6", &["erp/*", "ops/find"]);
    assert_eq!(settings.upstreams, [entry("crm", "http://10.0.0.5:8080/v1", &["crm/*"]), erp.clone()]);
    assert_eq!(settings.list_notes, []);

    let settings = upstreams(value, &dev()).unwrap();
    assert_eq!(settings.upstreams, [entry("crm", "http://10.0.0.5:8080/v1", &["*"]), erp]);
    let entry = "crm=http://10.0.0.5:8080/v1".to_owned();
    assert_eq!(settings.list_notes, [ListNote { list: "ASP_UPSTREAMS", entry, served: Coverage::Every }]);
}

#[test]
fn an_agent_host_is_a_host_with_the_servers_that_may_have_it() {
    let read = |value: &str| {
        let environment: BTreeMap<&str, &str> =
            PRODUCTION.into_iter().chain([("ASP_AGENT_HOSTS", value)]).collect();
        Settings::read(&ServeArgs::default(), &environment)
    };
    let settings = read("crm.example.com:8443;for=crm/*").unwrap();
    assert_eq!(settings.agent_hosts, [("crm.example.com:8443".to_owned(), vec!["crm/*".to_owned()])]);
    for bad in ["crm.example.com", "https://crm.example.com;for=crm/*", "crm.example.com/a;for=crm/*"] {
        let faults = read(bad).unwrap_err();
        assert!(faults.iter().all(|fault| fault.name == "ASP_AGENT_HOSTS"), "{bad} {faults:?}");
    }
}

#[test]
fn an_empty_for_serves_nobody_everywhere_and_is_noted() {
    for args in [ServeArgs::default(), dev()] {
        let settings = upstreams("crm=http://10.0.0.5;for=", &args).unwrap();
        assert_eq!(settings.upstreams[0].primitives, Vec::<String>::new());
        assert_eq!(settings.list_notes.len(), 1);
        assert_eq!(settings.list_notes[0].served, Coverage::None);
    }
}

#[test]
fn bad_entries_are_refused_in_development_too() {
    for bad in [
        "crm",
        "=http://h;for=*",
        "crm=ftp://h;for=*",
        "crm=http://h/a?b;for=*",
        "crm=http://h/a/../b;for=*",
        "crm=http://h/%2e;for=*",
        "crm=http://u:p@h;for=*",
        "crm=http://h;for=crm",
        "crm=http://h;for=*/x",
        "crm=http://h;to=*",
        "crm=http://h;for=a/*,crm=http://other;for=b/*",
    ] {
        assert!(upstreams(bad, &ServeArgs::default()).is_err(), "{bad}");
        assert!(upstreams(bad, &dev()).is_err(), "{bad}");
    }
    assert!(upstreams("crm=http://h/a;for=a/*,crm=http://h/b;for=b/*", &ServeArgs::default()).is_ok());
}

/// The setting of developers who run `asp dev` with an imported server.
#[test]
fn asp_dev_takes_an_upstream_without_for() {
    let environment = BTreeMap::from([("ASP_UPSTREAMS", "case=http://127.0.0.1:3001")]);
    let flags = dev::Flags { port: Some(0), ..dev::Flags::default() };
    let settings = dev::read(flags, std::path::Path::new("/tmp/state"), &environment).unwrap();
    assert_eq!(settings.upstreams[0].primitives, ["*"]);
    assert_eq!(settings.list_notes[0].served, Coverage::Every);
}
