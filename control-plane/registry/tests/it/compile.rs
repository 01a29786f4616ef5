//! Compilation of each key of a spec: names by protocol, runtimes, static content, questions, cards.

use asp_proto::snapshot::{
    AuthScheme, Kind, Mutation, Primitive, Protocol, RiskClass, Sessions, proxy_a2a::Binding as AgentBinding,
    proxy_http::BodyFormat, runtime::Mode,
};
use asp_registry::{CompiledServer, Source, check, compile_mcp, runtime_manifest};
use serde_json::{Value, json};

const SERVER: &str = "protocols: [mcp, a2a, rest]\nauth: {schemes: [jwt], issuers: [dev]}";

/// Compiles the server `demo` with one primitive `x` and the `listed` entry for it.
fn server_with(server: &str, listed: &str, spec: &str) -> CompiledServer {
    let file = format!("apiVersion: asp/v1\nname: demo\ndescription: D\n{server}\nprimitives: [{listed}]\n");
    let sources = [
        Source { path: "demo/server.yaml".into(), text: file },
        Source { path: "demo/x.yaml".into(), text: spec.into() },
    ];
    let report = check(&sources);
    assert_eq!(report.faults, []);
    report.catalog.expect("no fault").servers.remove(0)
}

fn compiled(spec: &str) -> CompiledServer {
    server_with(SERVER, "{ref: demo/x}", spec)
}

fn primitive(spec: &str) -> Primitive {
    compiled(spec).primitives.remove(0)
}

fn tool(extra: &str) -> String {
    format!(
        "id: x\nname: X\ntype: tool\nversion: 1.2.3\nowner: team\nsummary: Does x.\ntags: [a, b]\n\
         primitiveSchema:\n  input_schema: {{type: object, properties: {{id: {{type: string}}}}, required: [id]}}\n{extra}\n"
    )
}

const BUILTIN: &str = "mutation: read_only\nruntime: {mode: builtin, entrypoint: x.y}";

fn mode(spec: &str) -> Mode {
    primitive(spec).runtime.and_then(|runtime| runtime.mode).expect("a runtime")
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect(text)
}

#[test]
fn a_primitive_appears_under_its_id_where_nothing_else_is_said() {
    let listing = compiled(&tool(BUILTIN)).server.listings.remove(0);
    assert_eq!((listing.id.as_str(), listing.version.as_str()), ("x", "1.2.3"));
    assert_eq!(
        (listing.mcp_name.as_str(), listing.a2a_skill.as_str(), listing.rest_name.as_str()),
        ("x", "x", "x")
    );
}

#[test]
fn exposure_renames_and_hides_by_protocol() {
    let exposure = "exposure:\n  mcp: {tool: {name: my_x}}\n  a2a: {skill: {id: \"agent://x\"}}\n  rest: {operation: {enabled: false}}";
    let spec = tool(&format!("{BUILTIN}\n{exposure}"));
    let server = compiled(&spec);
    let listing = &server.server.listings[0];
    assert_eq!(
        (listing.mcp_name.as_str(), listing.a2a_skill.as_str(), listing.rest_name.as_str()),
        ("my_x", "agent://x", "")
    );
    assert_eq!(compile_mcp(&server, "2025-11-25")["tools"][0]["name"], "my_x");
    assert_eq!(json_of(&server.agent_card)["skills"][0]["id"], "agent://x");

    let shown = tool(&format!("{BUILTIN}\n{}", exposure.replace("enabled: false", "name: rest_x")));
    assert_eq!(compiled(&shown).server.listings[0].rest_name, "rest_x");
    let renamed = server_with(SERVER, "{ref: demo/x, as: other}", &shown);
    let listing = &renamed.server.listings[0];
    assert_eq!(
        (listing.mcp_name.as_str(), listing.a2a_skill.as_str(), listing.rest_name.as_str()),
        ("other", "other", "other")
    );
    assert_eq!(compile_mcp(&renamed, "2025-11-25")["tools"][0]["name"], "other");
    assert_eq!(json_of(&renamed.agent_card)["skills"][0]["id"], "other");

    let hidden = tool(&format!("{BUILTIN}\nexposure: {{mcp: {{tool: {{enabled: false}}}}}}"));
    assert_eq!(compile_mcp(&compiled(&hidden), "2025-11-25")["tools"], json!([]));
}

#[test]
fn the_end_of_support_is_announced_in_lists_and_on_the_card() {
    let server = compiled(&tool(&format!("{BUILTIN}\ndeprecated: {{until: 2027-03-01, use: y}}")));
    let listed = |revision: &str| compile_mcp(&server, revision)["tools"][0].clone();
    let note = "Deprecated: not supported from 2027-03-01 on. Use y instead.";
    for (revision, meta) in [
        ("2025-03-26", Value::Null),
        ("2025-06-18", json!({"until": "2027-03-01", "use": "y", "refuse": false})),
    ] {
        let tool = listed(revision);
        assert!(tool["description"].as_str().is_some_and(|text| text.ends_with(note)), "{tool}");
        assert_eq!(tool["_meta"]["asp/deprecated"], meta, "{revision}");
    }
    let skill = json_of(&server.agent_card)["skills"][0].clone();
    assert!(skill["description"].as_str().is_some_and(|text| text.ends_with(note)), "{skill}");
    assert!(skill["tags"].as_array().is_some_and(|tags| tags.contains(&json!("deprecated"))), "{skill}");
    let deprecation = server.primitives[0].deprecation.clone().unwrap_or_default();
    assert_eq!((deprecation.until_unix_s, deprecation.refuse), (1_803_859_200, false));
}

#[test]
fn nothing_of_a2a_reaches_the_snapshot_of_a_server_for_which_it_is_off() {
    let server = compiled(&tool(BUILTIN));
    assert_eq!(server.edge.protocols().collect::<Vec<_>>(), [Protocol::Mcp, Protocol::A2a, Protocol::Rest]);
    let mut card = json_of(&server.agent_card);
    let skills = card.as_object_mut().and_then(|members| members.remove("skills"));
    assert_eq!(skills.as_ref().map(|skills| &skills[0]["id"]), Some(&json!("x")));
    assert_eq!(json_of(&server.server.a2a_card), card, "gateways add the skills");
    assert!(server.lists_a2a() && !server.is_a2a_off());
    let mut off = server.clone();
    off.switch_a2a_off();
    assert!(off.lists_a2a() && off.is_a2a_off());
    assert_eq!(off.edge.protocols().collect::<Vec<_>>(), [Protocol::Mcp, Protocol::Rest]);
    assert_eq!((off.server.a2a_card.as_str(), off.server.listings[0].a2a_skill.as_str()), ("", ""));
    assert_eq!(off.agent_card, server.agent_card, "its author can look at it");
    let other = format!("{SERVER}\ncard: {{iconUrl: \"https://example.com/i.png\"}}");
    let changed = server_with(&other, "{ref: demo/x}", &tool(BUILTIN));
    assert_ne!(changed.content_hash, server.content_hash, "a changed card is a changed server");
    let plain = server_with("protocols: [mcp]\nauth: {schemes: [none]}", "{ref: demo/x}", &tool(BUILTIN));
    assert!(!plain.lists_a2a() && !plain.is_a2a_off());
}

#[test]
fn prompts_and_resources_are_no_skills() {
    let prompt = "id: x\nname: X\ntype: prompt\nversion: 1.0.0\nowner: o\nsummary: s\nprimitiveSchema:\n  arguments: [{name: who}]\n  messages: [{role: user, content: {type: text, text: \"Hi {{who}}\"}}]\n";
    let server = compiled(prompt);
    let listing = &server.server.listings[0];
    assert_eq!(
        (listing.mcp_name.as_str(), listing.a2a_skill.as_str(), listing.rest_name.as_str()),
        ("x", "", "")
    );
    let Some(Mode::Static(content)) = server.primitives[0].runtime.as_ref().and_then(|r| r.mode.clone())
    else {
        panic!("a static prompt");
    };
    assert_eq!(
        json_of(&content.json),
        json!([{"role": "user", "content": {"type": "text", "text": "Hi {{who}}"}}])
    );
    assert_eq!(server.primitives[0].mutation(), Mutation::ReadOnly);
}

#[test]
fn static_resources_carry_mcp_contents() {
    let spec = "id: x\nname: X\ntype: resource\nversion: 1.0.0\nowner: o\nsummary: s\nprimitiveSchema:\n  uri: demo://x\n  mimeType: text/plain\n  contents:\n    - {text: one}\n    - {uri: \"demo://x/2\", mimeType: image/png, blob: aGk=}\n";
    let server = compiled(spec);
    assert_eq!(server.server.listings[0].mcp_name, "demo://x");
    let Some(Mode::Static(content)) = server.primitives[0].runtime.as_ref().and_then(|r| r.mode.clone())
    else {
        panic!("a static resource");
    };
    let expected = json!([
        {"uri": "demo://x", "mimeType": "text/plain", "text": "one"},
        {"uri": "demo://x/2", "mimeType": "image/png", "blob": "aGk="},
    ]);
    assert_eq!(json_of(&content.json), expected);
}

#[test]
fn runtimes_are_compiled_mode_by_mode() {
    let Mode::Builtin(builtin) = mode(&tool(BUILTIN)) else { panic!("builtin") };
    assert_eq!(builtin.entrypoint, "x.y");
    let http = "mutation: idempotent\nruntime:\n  mode: proxy\n  http:\n    method: PUT\n    url: https://api.example.com/x/{id}\n    query: {q: \"{id}\"}\n    headers: {X-A: one}\n    body: {ref: /id}\n    result: /data\n    timeoutMs: 1500\n    retries: 2";
    let Mode::ProxyHttp(http) = mode(&tool(http)) else { panic!("http") };
    assert_eq!((http.method.as_str(), http.url.as_str()), ("PUT", "https://api.example.com/x/{id}"));
    assert_eq!((http.query["q"].as_str(), http.headers["X-A"].as_str()), ("{id}", "one"));
    assert_eq!(
        (http.body.as_str(), http.result.as_str(), http.timeout_ms, http.retries),
        (r#"{"ref":"/id"}"#, "/data", 1500, 2)
    );
    let args =
        "mutation: read_only\nruntime: {mode: proxy, http: {url: \"https://api.example.com/\", body: args}}";
    let Mode::ProxyHttp(http) = mode(&tool(args)) else { panic!("http") };
    assert_eq!((http.method.as_str(), http.body.as_str()), ("POST", "args"));
    assert_eq!(http.body_format(), BodyFormat::Unspecified);
    let form = "mutation: read_only\nruntime: {mode: proxy, http: {url: \"https://api.example.com/\", body: args, bodyFormat: form, bodyStyles: {ids: deepObject}}}";
    let Mode::ProxyHttp(http) = mode(&tool(form)) else { panic!("http") };
    assert_eq!((http.body_format(), http.body_styles["ids"].as_str()), (BodyFormat::Form, "deepObject"));
    let mcp = "mutation: read_only\nruntime: {mode: proxy, mcp: {url: \"https://up.example.com/mcp\"}}";
    let Mode::ProxyMcp(mcp) = mode(&tool(mcp)) else { panic!("mcp") };
    assert_eq!((mcp.url.as_str(), mcp.tool.as_str()), ("https://up.example.com/mcp", "x"));
    let calls = "mutation: read_only\nruntime: {mode: proxy, calls: {url: \"https://up.example.com/v1\", tool: scan}}";
    let Mode::ProxyCalls(calls) = mode(&tool(calls)) else { panic!("calls") };
    assert_eq!((calls.url.as_str(), calls.tool.as_str()), ("https://up.example.com/v1", "scan"));
    let a2a = "mutation: read_only\nruntime: {mode: proxy, a2a: {url: \"https://up.example.com/a2a\", skill: scan}}";
    let Mode::ProxyA2a(a2a) = mode(&tool(a2a)) else { panic!("a2a") };
    assert_eq!((a2a.url.as_str(), a2a.skill.as_str()), ("https://up.example.com/a2a", "scan"));
    assert_eq!((a2a.binding(), a2a.version.as_str()), (AgentBinding::Jsonrpc, "1.0"));
    assert!(!a2a.without_streams);
    let old = "mutation: read_only\nruntime: {mode: proxy, auth: {token: {}}, a2a: {url: \"https://up.example.com/a2a\", binding: rest, version: \"0.3\", streaming: false, textArgument: id}}";
    let Mode::ProxyA2a(a2a) = mode(&tool(old)) else { panic!("a2a") };
    assert_eq!((a2a.binding(), a2a.version.as_str()), (AgentBinding::Rest, "0.3"));
    assert_eq!((a2a.text_argument.as_str(), a2a.without_streams), ("id", true));
    let plugin = "mutation: read_only\nruntime: {mode: plugin, language: node, entrypoint: src/x.js, resources: {cpu: 250m, memory: 256Mi}}";
    let Mode::Plugin(plugin) = mode(&tool(plugin)) else { panic!("plugin") };
    assert_eq!((plugin.language.as_str(), plugin.entrypoint.as_str()), ("node", "src/x.js"));
    assert_eq!((plugin.cpu_millis, plugin.memory_bytes), (250, 256 * 1024 * 1024));
    let stdio = "mutation: read_only\nruntime: {mode: mcp-stdio, package: \"@scope/server\", tool: theirs}";
    let Mode::McpStdio(stdio) = mode(&tool(stdio)) else { panic!("stdio") };
    assert_eq!((stdio.package.as_str(), stdio.tool.as_str()), ("@scope/server", "theirs"));
}

#[test]
fn the_manifest_names_mode_and_limits_in_plain_units() {
    let spec = tool(
        "mutation: non_idempotent\ncapabilities: {supportsCancellation: true, maxRuntimeSeconds: 90}\n\
         security: {riskClass: high, allowedDomains: [a.example.com], rateLimitMax: {invocationCount: 5, timeUnitCount: 2, timeUnit: minutes}}\n\
         runtime: {mode: plugin, language: python, entrypoint: x.py, resources: {cpu: 2, memory: 1G}}",
    );
    let expected = json!({
        "id": "x", "version": "1.2.3", "kind": "tool", "mode": "plugin", "language": "python", "entrypoint": "x.py",
        "limits": {
            "maxRuntimeSeconds": 90, "inputTimeoutSeconds": 300, "invocationCount": 5, "windowSeconds": 120,
            "cpuMillis": 2000, "memoryBytes": 1_000_000_000,
        },
        "mutation": "non_idempotent", "riskClass": "high", "supportsProgress": false, "supportsCancellation": true,
        "allowedDomains": ["a.example.com"], "elicitations": [], "delegations": [],
    });
    assert_eq!(runtime_manifest(&primitive(&spec)), expected);
}

#[test]
fn the_rest_of_a_spec_has_its_place_in_the_snapshot() {
    let spec = tool(
        "mutation: destructive\nidempotency: {argument: id}\nexposure: {a2a: {skill: {textArgument: id}}}\n\
         security: {riskClass: low, auth: {type: jwt, scopes: [a, b]}}\nruntime: {mode: builtin, entrypoint: x}",
    );
    let primitive = primitive(&spec);
    assert_eq!(primitive.kind(), Kind::Tool);
    assert_eq!(primitive.mutation(), Mutation::Destructive);
    assert_eq!(primitive.risk_class(), RiskClass::Low);
    assert_eq!(primitive.scopes, ["a", "b"]);
    assert_eq!((primitive.idempotency_argument.as_str(), primitive.a2a_text_argument.as_str()), ("id", "id"));
    assert_eq!((primitive.owner.as_str(), primitive.title.as_str()), ("team", "X"));
    assert_eq!(primitive.tags, ["a", "b"]);
    assert_eq!(primitive.limit, None);
    assert_eq!(
        primitive.input_schema,
        r#"{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}"#
    );
    assert_eq!(primitive.output_schema, "");
}

#[test]
fn what_an_argument_may_be_is_kept_in_the_order_of_the_spec() {
    let spec = "id: x\nname: X\ntype: prompt\nversion: 1.0.0\nowner: team\nprimitiveSchema:\n  \
                arguments: [{name: city}]\n  completions: {city: [Oslo, Paris, Bergen]}\n  \
                messages: [{role: user, content: {type: text, text: '{{city}}'}}]\n";
    let offered = primitive(spec).completions;
    assert_eq!((offered.len(), offered[0].argument.as_str()), (1, "city"));
    assert_eq!(offered[0].values, ["Oslo", "Paris", "Bergen"]);
}

#[test]
fn whoever_runs_a_prompt_may_know_what_its_arguments_may_be() {
    for (completer, runtime) in [
        ("plugin", "mode: plugin, language: python, entrypoint: main.py"),
        ("upstream", "mode: proxy, mcp: {url: 'https://up.example/mcp', tool: p}"),
    ] {
        let schema = format!("{{arguments: [{{name: city}}], completions: {{city: {completer}}}}}");
        let spec = format!(
            "id: x\nname: X\ntype: prompt\nversion: 1.0.0\nowner: team\nprimitiveSchema: {schema}\nruntime: {{{runtime}}}\n"
        );
        let offered = primitive(&spec).completions;
        assert!(offered[0].by_runtime && offered[0].values.is_empty(), "{completer}");
    }
}

#[test]
fn a_template_says_whether_its_plugin_lists() {
    let spec = |listed: &str| {
        let spec = format!(
            "id: x\nname: X\ntype: resource_template\nversion: 1.0.0\nowner: team\n\
             primitiveSchema: {{uriTemplate: 'demo://{{id}}'{listed}}}\n\
             runtime: {{mode: plugin, language: python, entrypoint: main.py}}\n"
        );
        primitive(&spec).listed_by_runtime
    };
    assert!(spec(", listed: plugin") && !spec(""));
}

#[test]
fn a_resource_says_whether_its_plugin_watches() {
    for (kind, schema) in
        [("resource", "uri: 'demo://a'"), ("resource_template", "uriTemplate: 'demo://{id}'")]
    {
        let watched = |key: &str| {
            let spec = format!(
                "id: x\nname: X\ntype: {kind}\nversion: 1.0.0\nowner: team\n\
                 primitiveSchema: {{{schema}{key}}}\n\
                 runtime: {{mode: plugin, language: python, entrypoint: main.py}}\n"
            );
            primitive(&spec).watched_by_runtime
        };
        assert!(watched(", watched: plugin") && !watched(""), "{kind}");
    }
}

#[test]
fn hints_follow_from_mutation() {
    let hints = |mutation: &str| {
        let spec = tool(&format!("{mutation}\nruntime: {{mode: builtin, entrypoint: x}}"));
        let hints = compile_mcp(&compiled(&spec), "2025-11-25")["tools"][0]["annotations"].clone();
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
            .map(|key| hints[key].as_bool().expect(key))
    };
    assert_eq!(hints("mutation: read_only"), [true, false, true, false]);
    assert_eq!(hints("mutation: idempotent"), [false, false, true, false]);
    assert_eq!(hints("mutation: non_idempotent"), [false, false, false, false]);
    assert_eq!(
        hints("mutation: destructive\nannotations: {openWorldHint: true}"),
        [false, true, false, true]
    );
    assert_eq!(hints(""), [false, true, false, false], "unstated is destructive");
}

#[test]
fn the_edge_gets_what_server_yaml_says() {
    let file = "protocols: [mcp, rest]\nsessions: both\ndefaultExposure: allow\nmaxBodyBytes: 2048\n\
        auth: {schemes: [jwt], issuers: [dev, corp], scopes: [s], audiences: [\"urn:a\"]}\n\
        origins: [\"https://app.example.com\"]\nhosts: [\"API.example.com:8443\"]";
    let edge = server_with(file, "{ref: demo/x}", &tool(BUILTIN)).edge;
    assert_eq!(edge.name, "demo");
    assert_eq!(edge.protocols().collect::<Vec<_>>(), [Protocol::Mcp, Protocol::Rest]);
    assert!(edge.default_allow);
    assert_eq!(edge.schemes().collect::<Vec<_>>(), [AuthScheme::Jwt]);
    assert_eq!(
        (edge.issuers, edge.scopes, edge.audiences),
        (vec!["dev".to_string(), "corp".into()], vec!["s".to_string()], vec!["urn:a".to_string()])
    );
    assert_eq!(
        (edge.origins, edge.hosts),
        (vec!["https://app.example.com".to_string()], vec!["api.example.com:8443".to_string()])
    );
    assert_eq!((edge.max_body_bytes, edge.sessions), (2048, Sessions::Both.into()));
    let plain = server_with(SERVER, "{ref: demo/x}", &tool(BUILTIN)).edge;
    assert!(!plain.default_allow, "deny unless it says allow");
    assert_eq!(plain.sessions, i32::from(Sessions::Stateful));
}

#[test]
fn a_card_declares_its_schemes_in_both_forms() {
    let card = |auth: &str| {
        let file = format!(
            "protocols: [mcp, a2a]\nversion: 2.0.0\nauth: {auth}\ncard: {{capabilities: {{streaming: false, pushNotifications: true}}}}"
        );
        json_of(&server_with(&file, "{ref: demo/x}", &tool(BUILTIN)).agent_card)
    };
    let open = card("{schemes: [none]}");
    for absent in ["securitySchemes", "security", "supportsAuthenticatedExtendedCard"] {
        assert_eq!(open.get(absent), None, "{absent}");
    }
    assert_eq!((&open["version"], &open["capabilities"]), (&json!("2.0.0"), &json!({"streaming": true})));
    assert_eq!(open["url"], "${public_url}/demo/a2a");
    let secured = card("{schemes: [jwt], issuers: [dev], scopes: [s]}");
    assert_eq!(secured["capabilities"], json!({"streaming": true, "extendedAgentCard": true}));
    assert_eq!(secured["supportsAuthenticatedExtendedCard"], true);
    assert_eq!(secured["securitySchemes"]["bearer-jwt"]["scheme"], "bearer");
    assert_eq!(secured["security"], json!([{"bearer-jwt": ["s"]}]));
    assert_eq!(secured["securityRequirements"][0], json!({"schemes": {"bearer-jwt": {"list": ["s"]}}}));
    let by_certificate = card("{schemes: [mtls]}");
    let scheme = &by_certificate["securitySchemes"]["mtls"];
    assert_eq!(scheme["mtlsSecurityScheme"], json!({"description": "TLS client certificate"}));
}

#[test]
fn a_card_declares_the_extensions_of_its_server() {
    let file = "protocols: [mcp, a2a]\nauth: {schemes: [none]}\ncard:\n  extensions:\n  - {uri: 'urn:a', description: A}\n  - {uri: 'urn:b', description: '', required: true}";
    let card = json_of(&server_with(file, "{ref: demo/x}", &tool(BUILTIN)).agent_card);
    let declared = json!([{"uri": "urn:a", "description": "A"}, {"uri": "urn:b", "required": true}]);
    assert_eq!(card["capabilities"], json!({"streaming": true, "extensions": declared}));
}

#[test]
fn a_card_leaves_out_what_its_specs_leave_empty() {
    let spec = tool(BUILTIN)
        .replace("tags: [a, b]", "tags: []\nexamples: [{text: ''}, {input: {id: Ö}}]")
        .replace("summary: Does x.\n", "");
    let spec = spec + "security: {auth: {type: jwt, scopes: []}}\n";
    let card = json_of(&compiled(&spec).agent_card);
    let skill = json!({
        "id": "x", "name": "X", "description": "X", "tags": ["tool"], "examples": ["{\"id\":\"Ö\"}"]
    });
    assert_eq!(card["skills"], json!([skill]));
    let prompt = "id: x\nname: X\ntype: prompt\nversion: 1.0.0\nowner: o\nsummary: s\nprimitiveSchema:\n  arguments: [{name: who}]\n  messages: [{role: user, content: {type: text, text: \"Hi {{who}}\"}}]\n";
    assert_eq!(json_of(&compiled(prompt).agent_card).get("skills"), None);
}

#[test]
fn a_json_spec_compiles_like_the_same_yaml() {
    let yaml = tool(BUILTIN);
    let json = r#"{"id":"x","name":"X","type":"tool","version":"1.2.3","owner":"team","summary":"Does x.","tags":["a","b"],
        "primitiveSchema":{"input_schema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}},
        "mutation":"read_only","runtime":{"mode":"builtin","entrypoint":"x.y"}}"#;
    let sources = [
        Source { path: "demo/server.json".into(), text: r#"{"apiVersion":"asp/v1","name":"demo","description":"D","protocols":["mcp","a2a","rest"],"auth":{"schemes":["jwt"],"issuers":["dev"]},"primitives":[{"ref":"demo/x"}]}"#.into() },
        Source { path: "demo/x.json".into(), text: json.into() },
    ];
    let from_json = check(&sources).catalog.expect("no fault").servers.remove(0);
    assert_eq!(from_json.content_hash, compiled(&yaml).content_hash);
}
