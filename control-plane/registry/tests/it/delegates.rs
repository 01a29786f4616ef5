//! Delegates: who may answer one, and keys that their specs may not have.

use asp_proto::snapshot::runtime::Mode;
use asp_registry::{CheckReport, Source, check};

fn source(path: &str, text: String) -> Source {
    Source { path: path.into(), text }
}

fn found(report: &CheckReport) -> Vec<(&'static str, String)> {
    let all = report.faults.iter().chain(&report.warnings);
    all.map(|fault| (fault.code.as_str(), fault.path.clone())).collect()
}

fn spec(id: &str, kind: &str, rest: &str) -> Source {
    let text = format!(
        "id: {id}\nname: Sample\ntype: {kind}\nversion: 1.0.0\nowner: team\nsummary: A sample.\n{rest}\n"
    );
    source(&format!("demo/{id}.yaml"), text)
}

fn tool(id: &str, delegations: &str) -> Source {
    let rest = format!(
        "mutation: read_only\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
         primitiveDependencies: {{delegations: [{delegations}]}}\n\
         runtime: {{mode: plugin, language: python, entrypoint: main.py}}"
    );
    spec(id, "tool", &rest)
}

fn answered_by(id: &str, primitive: &str) -> Source {
    spec(id, "delegate", &format!("runtime: {{mode: primitive, primitive: {primitive}}}"))
}

fn server(listed: &[&str]) -> Source {
    let refs: Vec<String> = listed.iter().map(|id| format!("{{ref: demo/{id}}}")).collect();
    let text = format!(
        "apiVersion: asp/v1\nname: demo\nprotocols: [mcp]\nauth: {{schemes: [jwt], issuers: [dev]}}\nprimitives: [{}]\n",
        refs.join(", ")
    );
    source("demo/server.yaml", text)
}

fn assert_found(name: &str, sources: &[Source], expected: &[(&str, &str)]) {
    let found = found(&check(sources));
    let found: Vec<(&str, &str)> = found.iter().map(|(code, path)| (*code, path.as_str())).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn a_delegate_is_answered_by_a_model_or_by_a_primitive() {
    let openai = |rest: &str| {
        format!("runtime: {{mode: proxy, openai: {{url: \"https://llm.internal/v1\", model: small{rest}}}}}")
    };
    let table: [(String, &[(&str, &str)]); 27] = [
        ("primitiveSchema: {sampling: {maxTokens: 5}}".into(), &[]),
        ("primitiveSchema: {sampling: {maxTokens: 5}, prefer: platform}".into(), &[]),
        (
            "primitiveSchema: {sampling: {maxTokens: 5}, prefer: nobody}".into(),
            &[("bad_value", "/primitiveSchema/prefer")],
        ),
        ("primitiveSchema: {prefer: platform}".into(), &[("missing_key", "/primitiveSchema/sampling")]),
        ("primitiveSchema: {sampling: {maxTokens: 5}, prefer: client_only}".into(), &[]),
        ("primitiveSchema: {roots: {}}".into(), &[]),
        ("primitiveSchema: {roots: {}, prefer: client_only}".into(), &[]),
        ("primitiveSchema: {roots: {}, prefer: platform}".into(), &[("misplaced_key", "/primitiveSchema/prefer")]),
        (
            "primitiveSchema: {roots: {}, sampling: {maxTokens: 5}}".into(),
            &[("misplaced_key", "/primitiveSchema/sampling")],
        ),
        (
            format!("primitiveSchema: {{sampling: {{maxTokens: 5}}, prefer: client_only}}\n{}", openai("")),
            &[("misplaced_key", "/runtime")],
        ),
        (openai(""), &[]),
        (openai(", apiKeyName: corp-llm_2, temperature: 0, maxTokens: 64, timeoutMs: 5000, jsonSchema: true"), &[]),
        (openai(", headers: {x-team: legal}"), &[]),
        (openai(", temperature: 3"), &[("bad_value", "/runtime/openai/temperature")]),
        (openai(", maxTokens: 0"), &[("bad_value", "/runtime/openai/maxTokens")]),
        (openai(", timeoutMs: 600001"), &[("bad_value", "/runtime/openai/timeoutMs")]),
        (openai(", apiKey: sk-1"), &[("unknown_key", "/runtime/openai/apiKey")]),
        (openai(", apiKeyName: sk-proj-ABCDEF"), &[("bad_value", "/runtime/openai/apiKeyName")]),
        (
            openai(", apiKeyName: \"sk-0123456789abcdef0123456789abcdef\""),
            &[("bad_value", "/runtime/openai/apiKeyName")],
        ),
        (openai(", headers: {Authorization: Bearer x}"), &[("bad_header", "/runtime/openai/headers/Authorization")]),
        (openai(", headers: {x-team: \"légal\"}"), &[("bad_header", "/runtime/openai/headers/x-team")]),
        (
            "runtime: {mode: proxy, openai: {url: \"https://a.example.com/v1?key=x\", model: m}}".into(),
            &[("bad_url", "/runtime/openai/url")],
        ),
        (
            "runtime: {mode: proxy, openai: {url: \"http://10.0.0.1/v1\", model: m}}".into(),
            &[("private_upstream", "/runtime/openai/url")],
        ),
        (
            "runtime: {mode: proxy, openai: {url: \"https://a.example.com/v1\", model: \"\"}}".into(),
            &[("bad_value", "/runtime/openai/model")],
        ),
        ("runtime: {mode: proxy}".into(), &[("missing_key", "/runtime/openai")]),
        ("runtime: {mode: builtin, entrypoint: echo}".into(), &[("misplaced_key", "/runtime/mode")]),
        (
            "runtime: {mode: proxy, openai: {url: \"https://a.example.com/v1\", model: m}, http: {url: \"https://a.example.com\"}}"
                .into(),
            &[("misplaced_key", "/runtime/http")],
        ),
    ];
    for (rest, expected) in table {
        assert_found(&rest, &[spec("sample", "delegate", &rest)], expected);
    }
}

#[test]
fn a_model_of_the_platforms_is_offered_tools_where_no_input_schema_is_passed_over() {
    let schema = "primitiveSchema: {sampling: {maxTokens: 5, tools: true, includeContext: thisServer}}";
    let runtime = "runtime: {mode: proxy, openai: {url: \"https://a.example.com\", model: m}}";
    let both = format!("{schema}\n{runtime}");
    let preferred = schema.replace("primitiveSchema: {", "primitiveSchema: {prefer: platform, ");
    let fault = [("misplaced_key", "/primitiveSchema/input_schema")];
    let rows =
        [("a client's", schema, false), ("a spec's", &both, true), ("the operator's", &preferred, true)];
    for (whose, rest, is_refused) in rows {
        assert_found(whose, &[spec("sample", "delegate", rest)], &[]);
        let input = rest.replace("primitiveSchema: {", "primitiveSchema: {input_schema: {type: object}, ");
        let with_input: &[_] = if is_refused { &fault } else { &[] };
        assert_found(whose, &[spec("sample", "delegate", &input)], with_input);
    }
}

#[test]
fn no_fault_repeats_what_may_be_a_key() {
    let rest =
        "runtime: {mode: proxy, openai: {url: \"https://a.example.com\", model: m, apiKeyName: sk-S3CRET}}";
    let report = check(&[spec("sample", "delegate", rest)]);
    assert_eq!(report.faults.len(), 1);
    assert!(!format!("{:?}", report.faults).contains("S3CRET"), "{:?}", report.faults);
}

#[test]
fn what_answers_delegations_is_for_delegates_alone() {
    let rest = "mutation: read_only\nprimitiveSchema: {input_schema: {type: object}}\n";
    let rows: [(&str, &[(&str, &str)]); 3] = [
        ("runtime: {mode: primitive, primitive: other}", &[("misplaced_key", "/runtime/mode")]),
        (
            "runtime: {mode: proxy, openai: {url: \"https://a.example.com\", model: m}}",
            &[("missing_key", "/runtime/http"), ("misplaced_key", "/runtime/openai")],
        ),
        (
            "runtime: {mode: builtin, entrypoint: echo, openai: {url: \"https://a.example.com\", model: m}}",
            &[("misplaced_key", "/runtime/openai"), ("misplaced_key", "/runtime/openai")],
        ),
    ];
    for (runtime, expected) in rows {
        assert_found(runtime, &[spec("sample", "tool", &format!("{rest}{runtime}"))], expected);
    }
}

#[test]
fn a_primitive_that_answers_is_there_callable_listed_and_does_not_come_back() {
    let plain = tool("plain", "");
    let asks = tool("asks", "{id: helper}");
    let helper = |primitive: &str| answered_by("helper", primitive);
    let both = server(&["asks", "plain"]);
    assert_found("it compiles", &[both.clone(), asks.clone(), plain.clone(), helper("plain")], &[]);
    assert_found(
        "absent",
        &[asks.clone(), helper("nothing")],
        &[("unresolved_dependency", "/runtime/primitive")],
    );
    assert_found(
        "no id",
        &[helper("\"a b\"")],
        &[("bad_id", "/runtime/primitive"), ("unresolved_dependency", "/runtime/primitive")],
    );
    assert_found(
        "missing",
        &[spec("helper", "delegate", "runtime: {mode: primitive}")],
        &[("missing_key", "/runtime/primitive")],
    );
    assert_found(
        "not callable",
        &[helper("other"), answered_by("other", "plain"), plain.clone()],
        &[("unresolved_dependency", "/runtime/primitive")],
    );
    assert_found(
        "unlisted",
        &[server(&["asks"]), asks.clone(), helper("plain"), plain.clone()],
        &[("unresolved_ref", "/primitives"), ("unlisted_primitive", "/id")],
    );
    assert_found("itself", &[asks.clone(), helper("asks")], &[("delegate_loop", "/runtime/primitive")]);
    let long = [
        tool("one", "{id: to_two}"),
        answered_by("to_two", "two"),
        tool("two", "{id: to_three}"),
        answered_by("to_three", "three"),
        tool("three", "{id: to_one}"),
        answered_by("to_one", "one"),
    ];
    let loops = [("delegate_loop", "/runtime/primitive"); 3];
    assert_found("over three", &long, &loops);
    let leading =
        [tool("asks_zero", "{id: to_zero}"), answered_by("to_zero", "zero"), tool("zero", "{id: to_one}")];
    assert_found("what leads into a loop is none", &[&leading[..], &long[..]].concat(), &loops);
    let sampling = "primitiveSchema: {sampling: {maxTokens: 5}, prefer: client}\nruntime: {mode: primitive, primitive: plain}";
    assert_found(
        "for a model",
        &[spec("helper", "delegate", sampling), plain],
        &[("misplaced_key", "/primitiveSchema/prefer"), ("misplaced_key", "/primitiveSchema/sampling")],
    );
}

#[test]
fn a_version_of_a_primitive_answers_where_it_is_named_and_listed() {
    let plain = tool("plain", "");
    let asks = tool("asks", "{id: helper}");
    let helper = |primitive: &str| answered_by("helper", primitive);
    let listed = |refs: &str| {
        let text = format!(
            "apiVersion: asp/v1\nname: demo\nprotocols: [mcp]\nauth: {{schemes: [jwt], issuers: [dev]}}\nprimitives: [{refs}]\n"
        );
        source("demo/server.yaml", text)
    };
    let second = source("demo/plain-2.yaml", plain.text.replace("version: 1.0.0", "version: 2.0.0"));
    let versions = |listing: &str, named: &str| {
        [listed(listing), asks.clone(), plain.clone(), second.clone(), helper(named)]
    };
    let several = "{ref: demo/asks}, {ref: demo/plain}, {ref: demo/plain@1, as: plain_v1}";
    assert_found("a version", &versions(several, "plain@1"), &[]);
    assert_found("of a folder", &versions(several, "demo/plain@2"), &[]);
    assert_found(
        "no version",
        &versions(several, "plain@3"),
        &[("unresolved_dependency", "/runtime/primitive"), ("unresolved_ref", "/primitives")],
    );
    assert_found(
        "an unlisted version",
        &versions("{ref: demo/asks}, {ref: demo/plain}", "plain@1"),
        &[("unresolved_ref", "/primitives"), ("unlisted_primitive", "/id")],
    );
}

#[test]
fn a_delegate_compiles_to_what_answers_for_it() {
    let rest = "primitiveSchema: {sampling: {maxTokens: 5}, prefer: platform}\nruntime: {mode: proxy, openai: \
                {url: \"https://llm.internal/v1\", model: small, apiKeyName: llm, temperature: 0, jsonSchema: true}}";
    let sources = [
        server(&["asks", "plain"]),
        tool("asks", "{id: helper}, {id: judge}"),
        tool("plain", ""),
        answered_by("helper", "demo/plain"),
        spec("judge", "delegate", rest),
    ];
    let report = check(&sources);
    let catalog = report.catalog.unwrap_or_else(|| panic!("{:?}", report.faults));
    let primitives = &catalog.servers[0].primitives;
    let of = |id: &str| primitives.iter().find(|primitive| primitive.id == id).expect("it is compiled");
    let mode = |id: &str| of(id).runtime.clone().and_then(|runtime| runtime.mode).expect("it runs");
    let Mode::Primitive(other) = mode("helper") else { panic!("a primitive") };
    assert_eq!(other.id, "plain");
    let Mode::ProxyOpenai(openai) = mode("judge") else { panic!("a model") };
    assert_eq!((openai.url.as_str(), openai.model.as_str()), ("https://llm.internal/v1", "small"));
    assert_eq!((openai.api_key_name.as_str(), openai.temperature), ("llm", Some(0.0)));
    assert!(openai.json_schema && of("judge").prefer_platform && !of("helper").prefer_platform);
}
