//! Checks of an installation that is defined here, compared by their lines.

use std::collections::{BTreeMap, BTreeSet};

use asp_control::catalog;
use asp_issuers::document::Document;
use asp_store::control::SourceFile;
use serde_json::json;

use super::installation::{
    Binding, BindingTarget, Bound, Org, Selector, StoredCredential, StoredLimit, StoredServer,
};
use super::*;
use crate::settings::{ENV_PUBLIC_URL, ENV_UPSTREAMS};

const PRIVATE: &str = "ASP_RUNTIME_EGRESS_ALLOW_PRIVATE";

/// Builds a server over MCP with one primitive; `rest` and `spec` are lines of its files.
fn server(name: &str, rest: &str, id: &str, spec: &str) -> StoredServer {
    server_over("mcp", (name, rest), id, spec)
}

fn server_over(protocols: &str, (name, rest): (&str, &str), id: &str, spec: &str) -> StoredServer {
    let of_server = format!(
        "apiVersion: asp/v1\nname: {name}\ntitle: T\ndescription: D.\nversion: 1.0.0\nprotocols: [{protocols}]\n{rest}\n\
         primitives: [{{ref: {name}/{id}}}]\n"
    );
    let of_primitive = format!(
        "id: {id}\nname: N\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: S.\n\
         primitiveSchema:\n  input_schema: {{type: object, properties: {{}}}}\n{spec}\n"
    );
    let file = |path: String, text: String| SourceFile { path, text };
    let files =
        [file(format!("{name}/server.yaml"), of_server), file(format!("{name}/{id}.yaml"), of_primitive)];
    let form = catalog::compile(name, &files);
    StoredServer { name: name.into(), form, offered: BTreeSet::new(), a2a_confirmed: false }
}

const HIDDEN: &str = "defaultExposure: deny\nauth: {schemes: [jwt], issuers: [login]}";

fn http(method: &str, url: &str, auth: &str) -> String {
    let auth = if auth.is_empty() { String::new() } else { format!(", auth: {{{auth}}}") };
    format!("mutation: read_only\nruntime: {{mode: proxy, http: {{method: {method}, url: \"{url}\"}}{auth}}}")
}

fn org(name: &str, on: &[(&str, Option<&str>)]) -> Org {
    let switched_on = on.iter().map(|(server, by)| ((*server).to_owned(), by.map(str::to_owned)));
    Org { name: name.into(), switched_on: switched_on.collect(), ..Org::default() }
}

fn target(kind: &str, pattern: &str) -> BindingTarget {
    BindingTarget { kind: kind.into(), pattern: pattern.into(), issuer: String::new() }
}

fn checked(environment: &[(&str, &str)], installation: &Installation) -> Vec<String> {
    let environment: BTreeMap<&str, &str> = environment.iter().copied().collect();
    let resolve = |host: &str| match host {
        "erp.corp.example" => vec!["10.20.0.7".parse().unwrap()],
        "api.example.com" => vec!["93.184.215.14".parse().unwrap()],
        _ => Vec::new(),
    };
    let missing = offers::missing_offers(installation);
    report(&environment, &File::default(), installation, &missing, &resolve).lines()
}

/// Returns the lines without titles.
fn body(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).filter(|line| !line.starts_with("# ===")).collect()
}

#[test]
fn the_samples_of_this_test_compile() {
    let server = server("crm", HIDDEN, "find", &http("GET", "http://crm.internal/x", "token: {}"));
    assert!(server.form.is_ok(), "{:?}", server.form.err());
}

#[test]
fn lists_get_the_primitives_that_use_them_and_marks_where_that_is_more_than_one_team() {
    let installation = Installation {
        servers: vec![
            server("crm", HIDDEN, "find", &http("GET", "http://crm.internal/x", "token: {}")),
            server("weather", HIDDEN, "forecast", &http("DELETE", "http://crm.internal/y", "")),
        ],
        has_offers: true,
        ..Installation::default()
    };
    let lines = checked(&[(ENV_UPSTREAMS, "crm.internal=http://10.0.0.5:8080")], &installation);
    assert_eq!(
        body(&lines),
        [
            "# check: crm.internal is used by the servers crm, weather: keep those that its owner means",
            "# check: weather/forecast is declared read-only, but sends DELETE to crm.internal",
            "ASP_UPSTREAMS='crm.internal=http://10.0.0.5:8080;for=crm/find weather/forecast'",
            "ASP_TOKEN_AUDIENCES='http://crm.internal;for=crm/find'",
            "# 2 to do, 1 of them to check first",
        ]
    );
    let pasted = [
        (ENV_UPSTREAMS, "crm.internal=http://10.0.0.5:8080;for=crm/find weather/forecast"),
        ("ASP_TOKEN_AUDIENCES", "http://crm.internal;for=crm/find"),
    ];
    assert_eq!(body(&checked(&pasted, &installation)), ["# nothing is left to do"]);
}

#[test]
fn what_orgs_have_on_is_offered_and_what_they_switched_on_themselves_is_marked() {
    let find = http("GET", "https://api.example.com/", "");
    let open = "defaultExposure: allow\nauth: {schemes: [jwt], issuers: [login]}";
    let by_file = "defaultExposure: deny\nofferedTo: [acme]\nauth: {schemes: [jwt], issuers: [login]}";
    let offered =
        StoredServer { offered: ["acme".to_owned()].into(), ..server("offered", HIDDEN, "a", &find) };
    let installation = Installation {
        servers: vec![
            server("crm", HIDDEN, "find", &find),
            server("open", open, "b", &find),
            server("file", by_file, "c", &find),
            offered,
        ],
        orgs: vec![
            org(
                "acme",
                &[
                    ("crm", Some("ops@platform")),
                    ("open", Some("eve@acme")),
                    ("file", Some("eve@acme")),
                    ("offered", Some("eve@acme")),
                    ("gone", Some("ops@platform")),
                ],
            ),
            org("Globex Ltd", &[("crm", Some("eve@Globex Ltd"))]),
            org("other", &[("crm", None)]),
        ],
        has_offers: true,
        ..Installation::default()
    };
    let lines = checked(&[], &installation);
    assert_eq!(
        body(&lines),
        [
            "asp servers offer crm --to acme",
            "# check: crm was switched on for Globex Ltd by eve@Globex Ltd, an admin of the organisation itself",
            "asp servers offer crm --to 'Globex Ltd'",
            "# check: it is unknown who switched crm on for other",
            "asp servers offer crm --to other",
            "# 3 to do, 2 of them to check first",
        ]
    );
    let before = Installation { has_offers: false, ..installation };
    let lines = checked(&[], &before);
    assert!(
        lines.iter().any(|line| line == "asp servers offer crm --to acme    # after the upgrade"),
        "{lines:?}"
    );
}

#[test]
fn issuers_get_primitives_of_exchange_and_audiences_of_servers() {
    let own = "defaultExposure: deny\nauth: {schemes: [jwt], issuers: [login], audiences: \
               [\"https://mcp.example.com/shop/mcp\", \"https://shop.example.com\"]}";
    let spec = http("GET", "https://crm.example.com/", "exchange: {audience: crm}");
    let login: Document = serde_json::from_value(json!({
        "iss": "https://login.example.com", "orgs": ["acme"],
        "exchange": { "credential": "kc", "audiences": { "crm": ["https://crm.example.com"] } },
    }))
    .unwrap();
    let installation = Installation {
        servers: vec![server("shop", own, "find", &spec)],
        issuers: vec![Document { name: "login".into(), ..login }],
        has_offers: true,
        ..Installation::default()
    };
    let lines = checked(&[(ENV_PUBLIC_URL, "https://mcp.example.com")], &installation);
    let (mark, command) = (&lines[1], &lines[2]);
    assert!(
        mark.starts_with("# check: shop itself declares that it accepts tokens for https://shop.example.com"),
        "{mark}"
    );
    let (_, text) = command.split_once(" -d '").unwrap();
    let (text, rest) = text.rsplit_once('\'').unwrap();
    assert_eq!(rest, "    # after the upgrade");
    let document: Value = serde_json::from_str(text).unwrap();
    assert_eq!(
        document["exchange"]["audiences"]["crm"],
        json!({ "origins": ["https://crm.example.com"], "for": ["shop/find"] })
    );
    assert_eq!(document["serverAudiences"], json!({ "shop": ["https://shop.example.com"] }));
    // The printed document satisfies the check.
    let stored: Document = serde_json::from_value(document).unwrap();
    let done = Installation { issuers: vec![Document { name: "login".into(), ..stored }], ..installation };
    let lines = checked(&[(ENV_PUBLIC_URL, "https://mcp.example.com")], &done);
    assert_eq!(body(&lines), ["# nothing is left to do"]);
}

#[test]
fn a_private_network_is_opened_to_the_names_that_lead_into_it() {
    let plugin = "mutation: read_only\nsecurity: {allowedDomains: [erp.corp.example, api.example.com, \
                  crm.corp.example]}\nruntime: {mode: plugin, language: python, entrypoint: sync.py}";
    let installation = Installation {
        servers: vec![server("mine", HIDDEN, "sync", plugin)],
        has_offers: true,
        ..Installation::default()
    };
    let lines = checked(&[(PRIVATE, "10.20.0.0/16,10.30.0.0/16")], &installation);
    let line = format!("{PRIVATE}='erp.corp.example=10.20.0.0/16;for=mine/sync'");
    assert!(lines.contains(&line), "{lines:#?}");
    for mark in [
        "# check: crm.corp.example is not found from here; if it is in 10.20.0.0/16, add crm.corp.example=10.20.0.0/16;for=mine/sync",
        "# check: no plugin's domain leads into 10.30.0.0/16 from here: the entry is left out",
    ] {
        assert!(lines.iter().any(|line| line == mark), "{mark}\n{lines:#?}");
    }
    let pasted = [(PRIVATE, "erp.corp.example=10.20.0.0/16;for=mine/sync")];
    assert!(!checked(&pasted, &installation).iter().any(|line| line.starts_with(PRIVATE)));
}

#[test]
fn limits_that_all_callers_share_are_noted_and_stop_nothing() {
    let limits = ["{user: '*'}", "{user: each}", "{primitive: pay}", "{machine: arm}", "{wcit: each}"];
    let limits =
        limits.map(|selector| format!("{{selector: {selector}, policy: {{capacity: 1, refill: 1/s}}}}"));
    let limits = limits.map(|limit| serde_saphyr::from_str::<StoredLimit>(&limit).unwrap());
    let acme = Org { limits: limits.to_vec(), ..org("acme", &[]) };
    let lines =
        checked(&[], &Installation { orgs: vec![acme, org("globex", &[])], ..Installation::default() });
    let note = "acme: the rate limits 1, 3 stay limits of all callers together";
    assert!(lines.iter().any(|line| line.contains(note)), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("globex")), "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("# nothing is left to do"));
}

#[test]
fn what_is_kept_of_machines_is_noted_and_stops_nothing() {
    let machine = |id: &str, name: &str, fingerprint: Option<&str>| StoredCredential {
        id: id.into(),
        machine: name.into(),
        groups: vec!["robots".into()],
        scopes: vec!["orders:read".into()],
        fingerprint: fingerprint.map(str::to_owned),
    };
    let user = |pattern: &str| Binding { target: target("user", pattern), ..Binding::default() };
    let acme = Org {
        bindings: vec![user("press-*"), user("alice"), user("*")],
        keys: vec![machine("k1", "press-7", None)],
        certificates: vec![machine("c1", "arm", Some("ab12"))],
        ..org("acme", &[])
    };
    let before = Installation { orgs: vec![acme], ..Installation::default() };
    let lines = checked(&[], &before);
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(has(
        "after the upgrade its machines may have what they have today: groups robots; scopes orders:read"
    ));
    assert!(has("the certificate c1 of arm is registered by its fingerprint ab12"), "{lines:#?}");
    assert!(has("bindings of the user press-* are for the machines press-7 too"), "{lines:#?}");
    assert!(
        !has("alice") && lines.last().is_some_and(|line| line == "# nothing is left to do"),
        "{lines:#?}"
    );
    let mut after = before;
    after.orgs[0].bound = Some(Bound { groups: ["arms".to_owned()].into(), ..Bound::default() });
    let lines = checked(&[], &after);
    assert!(
        lines.iter().any(|line| line.contains("its machines may have groups arms; scopes none")),
        "{lines:#?}"
    );
}

#[test]
fn a_stored_allow_that_names_no_issuer_is_noted_where_several_speak_for_the_org() {
    let issuer = |name: &str, orgs: &[&str]| {
        let document = json!({ "iss": format!("https://{name}.example.com"), "orgs": orgs });
        Document { name: name.into(), ..serde_json::from_value(document).unwrap() }
    };
    let allow = |target: BindingTarget| Binding {
        target,
        primitive: Selector { name: "cc.pay".into(), protocol: "*".into() },
        allowed: true,
        ..Binding::default()
    };
    let of_login = BindingTarget { issuer: "login".into(), ..target("user", "bob") };
    let every = BindingTarget { issuer: "*".into(), ..target("user", "carol") };
    let bindings = vec![
        allow(target("user", "alice")),
        allow(target("user", "*")),
        allow(target("machine", "press")),
        allow(of_login),
        allow(every),
        Binding { allowed: false, ..allow(target("user", "dave")) },
        Binding { observe: true, ..allow(target("user", "erin")) },
        Binding { approval: true, ..allow(target("user", "frank")) },
    ];
    let of_org = |name: &str| Org { bindings: bindings.clone(), ..org(name, &[]) };
    let installation = Installation {
        orgs: vec![of_org("acme"), of_org("globex")],
        issuers: vec![issuer("login", &["*"]), issuer("contractors", &["ac*"])],
        has_offers: true,
        ..Installation::default()
    };
    let lines = checked(&[], &installation);
    let noted: Vec<&String> = lines.iter().filter(|line| line.contains("cc.pay")).collect();
    assert_eq!(
        noted,
        [
            "# a binding of acme allows the user alice to call cc.pay over every protocol, of any of its issuers (login, \
             contractors): add a binding that names the issuer, `asp policy acme --allow cc.pay --user alice --issuer NAME` \
             ('*' for all), then remove this one, `asp policy acme --remove cc.pay --user alice`"
        ]
    );
    assert!(lines.last().is_some_and(|line| line == "# nothing is left to do"), "{lines:#?}");
}

/// Bindings of which some hold over MCP and not over A2A.
fn bindings_beside_a2a() -> Vec<Binding> {
    let rule = |pattern: &str, primitive: &str, protocol: &str, allowed: bool| Binding {
        target: target("user", pattern),
        primitive: Selector { name: primitive.into(), protocol: protocol.into() },
        allowed,
        ..Binding::default()
    };
    vec![
        rule("alice", "fi*", "*", true),
        rule("bob", "find", "mcp", false),
        rule("carol", "find", "mcp", false),
        rule("carol", "find", "a2a", false),
        rule("dave", "other", "mcp", false),
        rule("erin", "find", "mcp", true),
        rule("frank", "find", "*", false),
        Binding { observe: true, ..rule("grace", "find", "mcp", false) },
        Binding {
            approval: true,
            when: vec![json!({ "pointer": "/to", "equals": "all" })],
            ..rule("*", "find", "mcp", true)
        },
    ]
}

#[test]
fn a_server_whose_a2a_is_off_is_noted_with_whom_it_lets_in_and_what_it_bypasses() {
    let find = http("GET", "https://api.example.com/", "");
    let open = "defaultExposure: allow\nauth: {schemes: [jwt], issuers: [login]}";
    let over_a2a = |name: &str, rest: &str, id: &str| server_over("mcp, a2a", (name, rest), id, &find);
    let acme = Org { bindings: bindings_beside_a2a(), ..org("acme", &[]) };
    let globex =
        Org { a2a: [("crm".to_owned(), false), ("hidden".to_owned(), true)].into(), ..org("globex", &[]) };
    let offered = StoredServer { offered: ["globex".to_owned()].into(), ..over_a2a("hidden", HIDDEN, "b") };
    let confirmed = StoredServer { a2a_confirmed: true, ..over_a2a("confirmed", open, "c") };
    let servers = vec![
        over_a2a("crm", open, "find"),
        offered,
        over_a2a("shut", HIDDEN, "d"),
        confirmed,
        server("plain", open, "e", &find),
    ];
    let installation =
        Installation { servers, orgs: vec![acme, globex], has_offers: true, ..Installation::default() };
    let off = |name: &str| {
        format!(
            "# {name}: A2A is off until this version applies the server, or `asp servers confirm {name} --protocol a2a`"
        )
    };
    let lines = checked(&[], &installation);
    assert_eq!(
        body(&lines),
        [
            format!("{}; then it is on for every organisation but globex", off("crm")),
            "# crm: a binding of acme allows the user alice to call fi* over every protocol, which includes a2a".into(),
            "# crm: a binding of acme denies the user bob to call find over mcp, and does not hold over a2a; \
             store it for a2a too: `asp policy acme --deny find --user bob --protocol a2a`"
                .into(),
            "# crm: a binding of acme requires a person's approval for the user * to call find over mcp when /to equals \
             \"all\", and does not hold over a2a; store it for a2a too: `asp policy acme --approval find \
             --user '*' --protocol a2a --when /to equals '\"all\"'`"
                .into(),
            format!("{}; then it is on for globex", off("hidden")),
            format!(
                "{}; then it is on for the organisations that switch it on (`asp policy ORG --expose shut --protocol a2a`)",
                off("shut")
            ),
            "# nothing is left to do".into(),
        ]
    );
}

#[test]
fn a_server_that_sets_a_header_which_is_refused_now_is_named() {
    for header in [
        "Idempotency-Key",
        "Forwarded",
        "X-Forwarded-For",
        "X-Real-IP",
        "X-Envoy-Peer-Metadata",
        "tracestate",
        "x-asp-user",
    ] {
        let http = format!("{{method: GET, url: \"https://a.example.com/\", headers: {{{header}: x}}}}");
        let spec = format!("mutation: read_only\nruntime: {{mode: proxy, http: {http}}}");
        let servers = vec![server("old", HIDDEN, "find", &spec)];
        let lines = checked(&[], &Installation { servers, has_offers: true, ..Installation::default() });
        assert!(lines[0].starts_with("# === servers"), "{lines:#?}");
        assert!(lines[1].contains(&format!("may not set the header `{header}`")), "{header}: {lines:#?}");
    }
}

#[test]
fn a_server_that_this_version_refuses_is_named_with_its_faults_in_comments() {
    let installation = Installation {
        servers: vec![server(
            "old",
            HIDDEN,
            "find",
            "mutation: read_only\nnonsense: 1\nruntime: {mode: static}",
        )],
        has_offers: true,
        ..Installation::default()
    };
    let lines = checked(&[], &installation);
    assert!(lines[1].starts_with("# old: this version rejects its files, "), "{lines:#?}");
    assert!(lines[1].contains("apply it:\n#   old/find.yaml"), "{lines:#?}");
    assert!(lines.iter().flat_map(|line| line.lines()).all(|line| line.starts_with('#')), "{lines:#?}");
}
