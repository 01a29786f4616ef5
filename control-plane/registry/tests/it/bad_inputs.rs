//! Tables of rejected inputs beyond the one sample for each code: each has its code and place, and each group covers
//! some keys.

use asp_registry::{CheckReport, Source, check};

fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}

fn found(report: &CheckReport) -> Vec<(&'static str, String)> {
    let all = report.faults.iter().chain(&report.warnings);
    all.map(|fault| (fault.code.as_str(), fault.path.clone())).collect()
}

/// Returns a tool with additional lines.
fn tool(extra: &str) -> Vec<(&'static str, String)> {
    let text = format!(
        "id: sample\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: A sample.\nmutation: idempotent\n\
         primitiveSchema:\n  input_schema:\n    type: object\n    required: [id]\n    properties:\n      \
         id: {{type: string}}\n      note: {{type: string}}\n      page: {{type: integer, default: 1}}\n{extra}\n"
    );
    found(&check(&[source("demo/sample.yaml", &text)]))
}

fn proxy(http: &str) -> Vec<(&'static str, String)> {
    tool(&format!("runtime: {{mode: proxy, http: {{{http}}}}}"))
}

const BUILTIN: &str = "runtime: {mode: builtin, entrypoint: echo}";

/// Returns a spec of another kind, without the lines that a tool needs.
fn other(kind: &str, rest: &str) -> Vec<(&'static str, String)> {
    let text = format!(
        "id: sample\nname: Sample\ntype: {kind}\nversion: 1.0.0\nowner: team\nsummary: A sample.\n{rest}\n"
    );
    found(&check(&[source("demo/sample.yaml", &text)]))
}

fn server(lines: &str) -> Vec<(&'static str, String)> {
    let text = format!("apiVersion: asp/v1\nname: demo\n{lines}\n");
    found(&check(&[source("demo/server.yaml", &text)]))
}

const AUTH: &str = "protocols: [mcp]\nauth: {schemes: [jwt], issuers: [dev]}";

fn assert_table(name: &str, found: Vec<(&'static str, String)>, expected: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = found.iter().map(|(code, path)| (*code, path.as_str())).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn a_proxied_call_goes_where_its_author_says_and_nowhere_else() {
    let url = "url: \"https://api.example.com/items/{id}\"";
    let at = "/runtime/http/url";
    assert_table("good", proxy(url), &[]);
    assert_table("default", proxy("url: \"https://api.example.com/{page}\""), &[]);
    assert_table("host", proxy("url: \"https://{id}.example.com/\""), &[("bad_url", at)]);
    assert_table("port", proxy("url: \"https://example.com:{page}/\""), &[("bad_url", at), ("bad_url", at)]);
    assert_table("unknown", proxy("url: \"https://api.example.com/{nobody}\""), &[("bad_mapping", at)]);
    assert_table("hole", proxy("url: \"https://api.example.com/{note}/x\""), &[("bad_mapping", at)]);
    assert_table("operator", proxy("url: \"https://api.example.com/{+id}\""), &[("bad_uri_template", at)]);
    assert_table("address", proxy("url: \"https://2130706433/\""), &[("bad_url", at)]);
    assert_table("metadata", proxy("url: \"http://169.254.169.254/latest\""), &[("private_upstream", at)]);
    assert_table("scheme", proxy("url: \"gopher://example.com/\""), &[("bad_url", at)]);
    let headers = [
        "Authorization",
        "COOKIE",
        "Host",
        "X-Asp-Route",
        "x_asp_peer",
        "Content-Length",
        "Caller-Org",
        "caller_org",
        "Caller_User",
        "Idempotency-Key",
        "Forwarded",
        "X-Forwarded-Client-Cert",
        "X_Forwarded_User",
        "x-envoy-peer",
        "X-Real-IP",
        "tracestate",
        "a b",
        "x:y",
        "",
    ];
    for header in headers {
        let found = proxy(&format!("{url}, headers: {{\"{header}\": x}}"));
        assert_eq!(found.first().map(|fault| fault.0), Some("bad_header"), "{header}: {found:?}");
    }
    assert_table("header", proxy(&format!("{url}, headers: {{X-Page: \"{{page}}\"}}")), &[]);
    let query = proxy(&format!("{url}, query: {{q: \"{{nobody}}\"}}"));
    assert_table("query", query, &[("bad_mapping", "/runtime/http/query/q")]);
    assert_table("body", proxy(&format!("{url}, body: args")), &[]);
    assert_table("body word", proxy(&format!("{url}, body: all")), &[("bad_mapping", "/runtime/http/body")]);
    let body = proxy(&format!("{url}, body: {{a: /note, b: note, c: /nobody/x, d: \"/id~2\"}}"));
    let at = |key: &str| format!("/runtime/http/body/{key}");
    assert_table(
        "pointers",
        body,
        &[("bad_mapping", &at("b")), ("bad_mapping", &at("c")), ("bad_mapping", &at("d"))],
    );
    let result = proxy(&format!("{url}, result: items"));
    assert_table("result", result, &[("bad_mapping", "/runtime/http/result")]);
    assert_table("method", proxy(&format!("{url}, method: TRACE")), &[("bad_value", "/runtime/http/method")]);
    assert_table("retries", proxy(&format!("{url}, retries: 3")), &[]);
    assert_table(
        "many retries",
        proxy(&format!("{url}, retries: 6")),
        &[("bad_value", "/runtime/http/retries")],
    );
}

#[test]
fn a_service_of_calls_is_a_base_url_and_a_name() {
    let calls = |text: &str| tool(&format!("runtime: {{mode: proxy, calls: {{{text}}}}}"));
    let url = "url: \"https://api.example.com/v1\"";
    let at = "/runtime/calls/url";
    assert_table("good", calls(url), &[]);
    assert_table("named", calls(&format!("{url}, tool: files.scan-2")), &[]);
    assert_table("no url", calls("tool: x"), &[("missing_key", at)]);
    assert_table("query", calls("url: \"https://api.example.com/?a=1\""), &[("bad_url", at)]);
    assert_table("argument", calls("url: \"https://api.example.com/{id}\""), &[("bad_url", at)]);
    assert_table("user", calls("url: \"https://u:p@api.example.com/\""), &[("bad_url", at)]);
    assert_table("private", calls("url: \"http://127.0.0.1/\""), &[("private_upstream", at)]);
    assert_table("operator's", calls("url: \"http://scanner.internal/\""), &[]);
    for name in ["a/b", "..%2f", "", "a b"] {
        let found = calls(&format!("{url}, tool: \"{name}\""));
        assert_table(name, found, &[("bad_entrypoint", "/runtime/calls/tool")]);
    }
    assert_table(
        "headers",
        calls(&format!("{url}, headers: {{a: b}}")),
        &[("unknown_key", "/runtime/calls/headers")],
    );
    let both = tool(&format!("runtime: {{mode: proxy, mcp: {{{url}}}, calls: {{{url}}}}}"));
    assert_table("both", both, &[("misplaced_key", "/runtime/calls")]);
    let elsewhere = tool(&format!("runtime: {{mode: builtin, entrypoint: echo, calls: {{{url}}}}}"));
    assert_table("mode", elsewhere, &[("misplaced_key", "/runtime/calls")]);
}

#[test]
fn a_call_that_is_not_idempotent_is_never_repeated() {
    let text = "id: sample\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: A sample.\n\
        mutation: non_idempotent\nprimitiveSchema: {input_schema: {type: object}}\n\
        runtime: {mode: proxy, http: {url: \"https://api.example.com/\", retries: 1}}";
    let found = found(&check(&[source("demo/sample.yaml", text)]));
    assert_table("retries", found, &[("mutation_conflict", "/runtime/http/retries")]);
}

#[test]
fn keys_that_mean_nothing_are_refused() {
    let both = "runtime: {mode: proxy, http: {url: \"https://a.example.com\"}, mcp: {url: \"https://a.example.com\"}}";
    let table: [(&str, &[(&str, &str)]); 14] = [
        ("runtime: {mode: builtin}", &[("missing_key", "/runtime/entrypoint")]),
        ("runtime: {mode: proxy}", &[("missing_key", "/runtime/http")]),
        (both, &[("misplaced_key", "/runtime/mcp")]),
        ("runtime: {mode: mcp-stdio}", &[("missing_key", "/runtime/package")]),
        ("runtime: {mode: mcp-stdio, package: \"@scope/server\", tool: x}", &[]),
        ("runtime: {mode: mcp-stdio, package: server, tool: x, pin: AB}", &[("bad_value", "/runtime/pin")]),
        (
            "runtime: {mode: builtin, entrypoint: echo, pin: ab}",
            &[("bad_value", "/runtime/pin"), ("misplaced_key", "/runtime/pin")],
        ),
        ("runtime: {mode: mcp-stdio, package: ../server}", &[("bad_entrypoint", "/runtime/package")]),
        (
            "runtime: {mode: plugin, language: python, entrypoint: /bin/sh}",
            &[("bad_entrypoint", "/runtime/entrypoint")],
        ),
        ("runtime: {mode: plugin, language: ruby, entrypoint: a.rb}", &[("bad_value", "/runtime/language")]),
        (
            "runtime: {mode: builtin, entrypoint: echo, language: python}",
            &[("misplaced_key", "/runtime/language")],
        ),
        ("runtime: {mode: shell, entrypoint: echo}", &[("bad_value", "/runtime/mode")]),
        (
            "runtime: {mode: plugin, language: java, entrypoint: com.example.Main, artifactSha256: abc}",
            &[("bad_value", "/runtime/artifactSha256")],
        ),
        ("", &[("missing_key", "/runtime")]),
    ];
    for (runtime, expected) in table {
        assert_table(runtime, tool(runtime), expected);
    }
    let domains = format!("{BUILTIN}\nsecurity: {{allowedDomains: [a.example.com]}}");
    assert_table("domains", tool(&domains), &[("misplaced_key", "/security/allowedDomains")]);
    let services = format!("{BUILTIN}\nsecurity: {{allowedTcp: ['db.example.com:5432']}}");
    assert_table("services", tool(&services), &[("misplaced_key", "/security/allowedTcp")]);
    let services = "runtime: {mode: plugin, language: python, entrypoint: main.py}\nsecurity: {allowedTcp: [\
        'db.example.com:5432', 'localhost:6379', 'db.example.com', '10.0.0.1:5432', 'DB.example.com:5432', 'db:0', '*.a.b:1', \
        'localhost:3128']}";
    let wrong: Vec<String> = (2..8).map(|index| format!("/security/allowedTcp/{index}")).collect();
    let wrong: Vec<(&str, &str)> = wrong.iter().map(|path| ("bad_host", path.as_str())).collect();
    assert_table("no services", tool(services), &wrong);
    let audience = format!("{BUILTIN}\nannotations: {{audience: [user]}}");
    assert_table("audience", tool(&audience), &[("misplaced_key", "/annotations/audience")]);
}

#[test]
fn the_text_of_a_message_goes_to_a_text_argument() {
    let at = "/exposure/a2a/skill/textArgument";
    let with = |argument: &str| {
        let exposure = format!("exposure: {{a2a: {{skill: {{textArgument: {argument}}}}}}}");
        tool(&format!("{exposure}\n{BUILTIN}"))
    };
    assert_table("text", with("note"), &[]);
    assert_table("number", with("page"), &[("bad_mapping", at)]);
    assert_table("unknown", with("nothing"), &[("bad_mapping", at)]);
}

#[test]
fn an_announced_end_is_a_day_with_another_primitive_to_call() {
    let of = |deprecated: &str| tool(&format!("{BUILTIN}\ndeprecated: {deprecated}"));
    assert_table("good", of("{until: 2027-03-01, use: other.find, reason: It is slow., refuse: true}"), &[]);
    for until in ["2027-02-30", "2027-3-1", "soon", "2027-03-01T00:00:00Z"] {
        assert_table(until, of(&format!("{{until: '{until}'}}")), &[("bad_value", "/deprecated/until")]);
    }
    for replacement in ["sample", "''", "a b"] {
        let found = of(&format!("{{until: 2027-03-01, use: {replacement}}}"));
        assert_table(replacement, found, &[("bad_value", "/deprecated/use")]);
    }
    let reason = of(&format!("{{until: 2027-03-01, reason: {}}}", "x".repeat(1001)));
    assert_table("reason", reason, &[("text_too_long", "/deprecated/reason")]);
    let question = "primitiveSchema: {message: Who?, fields: [{name: name, type: string}]}\ndeprecated: {until: 2027-03-01}";
    assert_table("question", other("elicitation", question), &[("misplaced_key", "/deprecated")]);
}

#[test]
fn an_agent_has_a_public_address_and_skills() {
    let with = |keys: &str| {
        tool(&format!("runtime: {{mode: proxy, a2a: {{url: \"https://agent.example.com/a2a\", {keys}}}}}"))
    };
    let pin = "ab".repeat(32);
    let fine = format!(
        "skill: \"urn:skill:x\", version: \"0.3\", binding: rest, textArgument: note, pin: {pin}, \
         signers: [NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs], card: \"https://agent.example.com/card.json\""
    );
    assert_table("fine", with(&fine), &[]);
    for (keys, code, path) in [
        ("skill: \"\"", "bad_value", "/runtime/a2a/skill"),
        ("tenant: \"\"", "bad_value", "/runtime/a2a/tenant"),
        ("pin: AB", "bad_value", "/runtime/a2a/pin"),
        ("signers: [short]", "bad_value", "/runtime/a2a/signers/0"),
        ("card: \"ftp://agent.example.com/\"", "bad_url", "/runtime/a2a/card"),
        ("textArgument: page", "bad_mapping", "/runtime/a2a/textArgument"),
    ] {
        assert_table(keys, with(keys), &[(code, path)]);
    }
    let both = "runtime: {mode: proxy, mcp: {url: \"https://a.example.com\"}, a2a: {url: \"https://a.example.com\"}}";
    assert_table("both", tool(both), &[("misplaced_key", "/runtime/a2a")]);
}

#[test]
fn a_stdio_package_names_one_folder_and_never_the_way_to_another() {
    let named =
        |package: &str| tool(&format!("runtime: {{mode: mcp-stdio, package: \"{package}\", tool: x}}"));
    for good in ["files", "files@2.0.0", "@scope/server", "@scope/server@1.0.0-rc.1", "a_b.c@2"] {
        assert_table(good, named(good), &[]);
    }
    for bad in [
        "x@..", "@..@1", "x@", "@", "@scope/", "x@.work", "@.work@1", "a/b/c@1", "x@1/2", "a//b", "x@$y",
        "a:b",
    ] {
        assert_table(bad, named(bad), &[("bad_entrypoint", "/runtime/package")]);
    }
}

#[test]
fn a_stdio_servers_own_names_may_be_of_any_letters() {
    let named = |name: &str| tool(&format!("runtime: {{mode: mcp-stdio, package: s, tool: {name:?}}}"));
    let long = format!("file:///{}", "a".repeat(300));
    for good in ["file:///a%20b?x=1&y=~2,(3)", "note://Größe#1", "search the web", "../a", "+", &long] {
        assert_table(good, named(good), &[]);
    }
    assert_table("none", named(""), &[("bad_entrypoint", "/runtime/tool")]);
}

#[test]
fn hints_may_only_repeat_what_mutation_says() {
    let with = |hints: &str| tool(&format!("{BUILTIN}\nannotations: {{{hints}}}"));
    assert_table("same", with("readOnlyHint: false, idempotentHint: true, openWorldHint: true"), &[]);
    assert_table("read", with("readOnlyHint: true"), &[("mutation_conflict", "/annotations/readOnlyHint")]);
    assert_table(
        "not",
        with("idempotentHint: false"),
        &[("mutation_conflict", "/annotations/idempotentHint")],
    );
    assert_table("text", with("readOnlyHint: \"yes\""), &[("wrong_type", "/annotations/readOnlyHint")]);
}

#[test]
fn quantities_and_limits_have_ranges() {
    let plugin = |resources: &str| {
        tool(&format!(
            "runtime: {{mode: plugin, language: node, entrypoint: a.js, resources: {{{resources}}}}}"
        ))
    };
    for good in [
        "cpu: 1",
        "cpu: 0.5",
        "cpu: 500m",
        "cpu: \"2\"",
        "memory: 512Mi",
        "memory: 1G",
        "memory: \"67108864\"",
    ] {
        assert_table(good, plugin(good), &[]);
    }
    for bad in ["cpu: 0", "cpu: -1", "cpu: 65", "cpu: fast", "cpu: 0m", "cpu: inf", "cpu: nan"] {
        assert_table(bad, plugin(bad), &[("bad_quantity", "/runtime/resources/cpu")]);
    }
    for bad in [
        "memory: 1GB",
        "memory: 1.5G",
        "memory: 15Mi",
        "memory: 65Gi",
        "memory: G",
        "memory: -1G",
        "memory: 99999999999G",
    ] {
        assert_table(bad, plugin(bad), &[("bad_quantity", "/runtime/resources/memory")]);
    }
    let limit = |limit: &str| tool(&format!("{BUILTIN}\nsecurity: {{rateLimitMax: {{{limit}}}}}"));
    let at = |key: &str| format!("/security/rateLimitMax/{key}");
    assert_table("one a day", limit("invocationCount: 1, timeUnit: days"), &[]);
    assert_table(
        "zero units",
        limit("invocationCount: 1, timeUnitCount: 0"),
        &[("bad_rate_limit", &at("timeUnitCount"))],
    );
    assert_table(
        "long",
        limit("invocationCount: 1, timeUnitCount: 32, timeUnit: days"),
        &[("bad_rate_limit", &at("timeUnitCount"))],
    );
    assert_table(
        "none at once",
        limit("invocationCount: 1, concurrentInvocations: 0"),
        &[("bad_rate_limit", &at("concurrentInvocations"))],
    );
    assert_table("weeks", limit("invocationCount: 1, timeUnit: weeks"), &[("bad_value", &at("timeUnit"))]);
    assert_table("negative", limit("invocationCount: -1"), &[("bad_value", &at("invocationCount"))]);
    let runtime = format!("{BUILTIN}\ncapabilities: {{maxRuntimeSeconds: 86401}}");
    assert_table("two days", tool(&runtime), &[("bad_value", "/capabilities/maxRuntimeSeconds")]);
}

#[test]
fn deceptive_texts_are_refused_wherever_they_stand() {
    for escape in [
        "\\u200B",
        "\\u200D",
        "\\u202E",
        "\\u2066",
        "\\uFEFF",
        "\\U000E0041",
        "\\u00AD",
        "\\u0007",
        "\\u2028",
        "\\U000E0100",
        "\\u3164",
        "\\u2800",
        "\\uFE00",
        "\\uFE0F",
        "👍\\uFE0F\\uFE0F",
        "\\u115F",
        "\\uFFA0",
        "\\u034F",
    ] {
        let text = format!("{BUILTIN}\ntags: [\"a{escape}b\"]");
        assert_table(escape, tool(&text), &[("bad_text", "/tags/0")]);
    }
    let inside = tool(&format!("{BUILTIN}\nannotations: {{title: \"a\\u202Eb\"}}"));
    assert_table("annotation", inside, &[("bad_text", "/annotations/title")]);
    let plain = tool(&format!("{BUILTIN}\ntags: [\"grün 日本語 👍🏽 ⚠️ \\t tab\"]"));
    assert_table("plain text of any language", plain, &[]);
}

#[test]
fn static_content_is_whole() {
    let prompt = |messages: &str| other("prompt", &format!("primitiveSchema: {{messages: [{messages}]}}"));
    let at = |key: &str| format!("/primitiveSchema/messages/0/content/{key}");
    assert_table("text", prompt("{role: user, content: {type: text, text: Hello}}"), &[]);
    assert_table("no text", prompt("{role: user, content: {type: text}}"), &[("missing_key", &at("text"))]);
    assert_table(
        "image",
        prompt("{role: user, content: {type: image, data: aGk=, mimeType: image/png}}"),
        &[],
    );
    assert_table(
        "base64",
        prompt("{role: user, content: {type: image, data: a=k=, mimeType: image/png}}"),
        &[("bad_value", &at("data"))],
    );
    assert_table(
        "role",
        prompt("{role: system, content: {type: text, text: x}}"),
        &[("bad_value", "/primitiveSchema/messages/0/role")],
    );
    assert_table(
        "open",
        prompt("{role: user, content: {type: text, text: \"a {{b\"}}"),
        &[("bad_placeholder", &at("text"))],
    );
    let resource = |rest: &str| other("resource", &format!("primitiveSchema: {{uri: demo://a, {rest}}}"));
    let at = |key: &str| format!("/primitiveSchema/contents/0/{key}");
    assert_table("blob", resource("contents: [{blob: aGk=}]"), &[]);
    assert_table("neither", resource("contents: [{}]"), &[("missing_key", &at("text"))]);
    assert_table("both", resource("contents: [{text: a, blob: aGk=}]"), &[("misplaced_key", &at("blob"))]);
    assert_table("no content", resource("mimeType: text/plain"), &[("missing_key", "/runtime")]);
}

#[test]
fn completions_are_for_arguments_that_there_are() {
    let prompt = |completions: &str| {
        let rest = "arguments: [{name: city}], messages: [{role: user, content: {type: text, text: a}}]";
        other("prompt", &format!("primitiveSchema: {{{rest}, completions: {completions}}}"))
    };
    let template = |completions: &str| {
        let rest = format!("uriTemplate: 'demo://{{id}}', completions: {completions}");
        other(
            "resource_template",
            &format!("primitiveSchema: {{{rest}}}\nruntime: {{mode: builtin, entrypoint: x}}"),
        )
    };
    let at = |rest: &str| format!("/primitiveSchema/completions/{rest}");
    let many = |count: usize| {
        format!("{{city: {:?}}}", (0..count).map(|number| number.to_string()).collect::<Vec<_>>())
    };
    assert_table("prompt", prompt("{city: [Oslo, Paris]}"), &[]);
    assert_table("template", template("{id: ['1', '2']}"), &[]);
    assert_table("most", prompt(&many(1000)), &[]);
    assert_table("more", prompt(&many(1001)), &[("too_many", &at("city"))]);
    assert_table("unknown argument", prompt("{town: [Oslo]}"), &[("bad_value", &at("town"))]);
    assert_table("unknown variable", template("{name: [a]}"), &[("bad_value", &at("name"))]);
    assert_table("twice", prompt("{city: [Oslo, Oslo]}"), &[("duplicate_name", &at("city/1"))]);
    assert_table("empty", prompt("{city: ['']}"), &[("bad_value", &at("city/0"))]);
    let long = format!("{{city: [{}]}}", "a".repeat(257));
    assert_table("long", prompt(&long), &[("bad_value", &at("city/0"))]);
    assert_table("a number", prompt("{city: [1]}"), &[("wrong_type", &at("city"))]);
    assert_table("no plugin", prompt("{city: plugin}"), &[("bad_value", &at("city"))]);
    assert_table("another word", prompt("{city: model}"), &[("wrong_type", &at("city"))]);
    assert_table("no upstream", prompt("{city: upstream}"), &[("bad_value", &at("city"))]);
    let tool = other("resource", "primitiveSchema: {uri: demo://a, contents: [{text: a}], completions: {}}");
    assert_table("a resource", tool, &[("misplaced_key", "/primitiveSchema/completions")]);
}

#[test]
fn media_types_are_media_types() {
    let resource = |mime_type: &str| {
        other(
            "resource",
            &format!(
                "primitiveSchema: {{uri: demo://a, mimeType: \"{mime_type}\", contents: [{{text: a}}]}}"
            ),
        )
    };
    for good in ["text/plain", "text/plain; charset=utf-8", "application/vnd.x+json"] {
        assert_table(good, resource(good), &[]);
    }
    for bad in ["", "text", "text/", "/plain", "text/pl ain", "text/plain; a\\nb", "text/plain; é"] {
        assert_table(bad, resource(bad), &[("bad_value", "/primitiveSchema/mimeType")]);
    }
    let skill = tool(&format!("{BUILTIN}\nexposure: {{a2a: {{skill: {{inputModes: [text/plain, pdf]}}}}}}"));
    assert_table("skill", skill, &[("bad_value", "/exposure/a2a/skill/inputModes/1")]);
}

#[test]
fn templates_match_in_one_way_only() {
    let template = |text: &str| {
        other("resource_template", &format!("primitiveSchema: {{uriTemplate: \"{text}\"}}\n{BUILTIN}"))
    };
    let fault = &[("bad_uri_template", "/primitiveSchema/uriTemplate")];
    assert_table("good", template("demo://a/{b}/{c}"), &[]);
    for bad in
        ["demo://a", "demo://{a}{b}", "demo://{a}/{a}", "{a}", "file:///{a}", "demo://{a", "demo://{?a}"]
    {
        assert_table(bad, template(bad), fault);
    }
}

#[test]
fn questions_are_flat_forms() {
    let at = "/primitiveSchema/fields";
    let fields = |fields: &str| other("elicitation", &format!("primitiveSchema: {{fields: [{fields}]}}"));
    assert_table("good", fields("{name: a, type: string, enum: [x, z], default: x}"), &[]);
    assert_table("none", fields(""), &[("bad_elicitation", at)]);
    assert_table(
        "name",
        fields("{name: a b, type: string}"),
        &[("bad_elicitation", "/primitiveSchema/fields/0/name")],
    );
    assert_table(
        "twice",
        fields("{name: a, type: string}, {name: a, type: string}"),
        &[("bad_elicitation", "/primitiveSchema/fields/1/name")],
    );
    assert_table(
        "choices",
        fields("{name: a, type: integer, enum: [x]}"),
        &[("bad_elicitation", "/primitiveSchema/fields/0/enum")],
    );
    assert_table(
        "default",
        fields("{name: a, type: integer, default: x}"),
        &[("bad_default", "/primitiveSchema/fields/0/default")],
    );
    let runtime =
        other("elicitation", &format!("primitiveSchema: {{fields: [{{name: a, type: string}}]}}\n{BUILTIN}"));
    assert_table("runtime", runtime, &[("misplaced_key", "/runtime")]);
    let exposed = other(
        "delegate",
        "primitiveSchema: {sampling: {maxTokens: 5}}\nexposure: {mcp: {tool: {enabled: true}}}",
    );
    assert_table("exposed", exposed, &[("not_exposable", "/exposure/mcp/tool")]);
}

#[test]
fn servers_are_judged_key_by_key() {
    let table: [(&str, &[(&str, &str)]); 26] = [
        ("", &[("missing_key", "/auth"), ("missing_key", "/protocols")]),
        ("protocols: []\nauth: {schemes: [jwt], issuers: [dev]}", &[("bad_value", "/protocols")]),
        ("protocols: [mcp, mcp]\nauth: {schemes: [jwt], issuers: [dev]}", &[("bad_value", "/protocols")]),
        ("protocols: [soap]\nauth: {schemes: [jwt], issuers: [dev]}", &[("bad_value", "/protocols/0")]),
        ("protocols: [mcp]\nauth: {schemes: [jwt]}", &[("auth_conflict", "/auth/issuers")]),
        ("protocols: [mcp]\nauth: {schemes: [psk], issuers: [dev]}", &[("auth_conflict", "/auth/issuers")]),
        ("protocols: [mcp]\nauth: {schemes: [none], scopes: [a]}", &[("auth_conflict", "/auth/schemes")]),
        (
            "protocols: [mcp]\nauth: {schemes: [jwt], issuers: [dev], scopes: [\"a b\"]}",
            &[("bad_scope", "/auth/scopes/0")],
        ),
        (
            "protocols: [mcp]\nauth: {schemes: [jwt], issuers: [dev], audiences: [\"\"]}",
            &[("bad_value", "/auth/audiences/0")],
        ),
        ("protocols: [mcp]\nauth: {schemes: [none]}\nmaxBodyBytes: 10", &[("bad_value", "/maxBodyBytes")]),
        // Envoy would reject what a gateway accepts.
        (
            "protocols: [mcp]\nauth: {schemes: [none]}\nmaxBodyBytes: 4194305",
            &[("bad_value", "/maxBodyBytes")],
        ),
        ("protocols: [mcp]\nauth: {schemes: [none]}\nversion: one", &[("bad_version", "/version")]),
        ("protocols: [mcp]\nauth: {schemes: [none]}\nhosts: [\"a/b\"]", &[("bad_host", "/hosts/0")]),
        ("protocols: [mcp]\nauth: {schemes: [none]}\norigins: [\"*\"]", &[("bad_origin", "/origins/0")]),
        ("protocols: [mcp]\nauth: {schemes: [none]}\ncard: {url: \"${public_url}/x\"}", &[]),
        (
            "protocols: [mcp]\nauth: {schemes: [none]}\ncard: {url: \"javascript:x\"}",
            &[("bad_url", "/card/url")],
        ),
        (
            "protocols: [mcp]\nauth: {schemes: [none]}\ncard: {defaultInputModes: [text]}",
            &[("bad_value", "/card/defaultInputModes/0")],
        ),
        ("protocols: [a2a]\nauth: {schemes: [none]}", &[("no_summary", "/description")]),
        ("protocols: [rest, a2a]\ndescription: D\nauth: {schemes: [none]}", &[]),
        ("protocols: [mcp]\nauth: {schemes: [psk]}", &[]),
        ("protocols: [mcp]\nauth: {schemes: [jwt, opaque, psk], issuers: [dev]}", &[]),
        ("protocols: [mcp]\nauth: {schemes: [none, psk]}", &[("auth_conflict", "/auth/schemes")]),
        ("protocols: [mcp]\nauth: {schemes: [opaque]}", &[("auth_conflict", "/auth/issuers")]),
        ("protocols: [mcp]\nauth: {schemes: [mtls]}", &[]),
        ("protocols: [mcp]\nauth: {schemes: [jwt, psk, mtls], issuers: [dev]}", &[]),
        ("protocols: [mcp]\nauth: {schemes: [none, mtls]}", &[("auth_conflict", "/auth/schemes")]),
    ];
    for (lines, expected) in table {
        assert_table(lines, server(lines), expected);
    }
    let wrong =
        found(&check(&[source("demo/server.yaml", &format!("apiVersion: asp/v2\nname: demo\n{AUTH}\n"))]));
    assert_table("version of the format", wrong, &[("bad_value", "/apiVersion")]);
}

#[test]
fn extensions_of_a_card_are_judged_one_by_one() {
    let table: [(&str, &[(&str, &str)]); 2] = [
        (
            "protocols: [mcp]\nauth: {schemes: [none]}\ncard: {extensions: [{uri: \"urn:a\"}, {uri: \"https://a/b\", required: true}]}",
            &[],
        ),
        (
            "protocols: [mcp]\nauth: {schemes: [none]}\ncard: {extensions: [{uri: \"urn:a\"}, {uri: \"urn:a\"}, {uri: \"a:b,c\"}, {uri: plain}]}",
            &[
                ("bad_value", "/card/extensions/1/uri"),
                ("bad_value", "/card/extensions/2/uri"),
                ("bad_value", "/card/extensions/3/uri"),
            ],
        ),
    ];
    for (lines, expected) in table {
        assert_table(lines, server(lines), expected);
    }
}

#[test]
fn tool_names_that_many_providers_refuse_are_warned_of() {
    let named = |id: &str| {
        let text = format!(
            "id: {id}\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: A sample.\nmutation: read_only\n\
             primitiveSchema: {{input_schema: {{type: object}}}}\n{BUILTIN}\n"
        );
        let server =
            format!("apiVersion: asp/v1\nname: demo\n{AUTH}\nprimitives: [{{ref: \"demo/{id}\"}}]\n");
        found(&check(&[source("demo/server.yaml", &server), source("demo/tool.yaml", &text)]))
    };
    let long = "a".repeat(65);
    for refused in ["a.b", &long] {
        assert_table(refused, named(refused), &[("unportable_name", "/primitives/0")]);
    }
    assert_table("64 letters", named(&long[..64]), &[]);
}

#[test]
fn a_file_full_of_warnings_hides_no_fault() {
    let formats: String = (0..250).map(|n| format!("      p{n}: {{type: string, format: odd}}\n")).collect();
    let text = format!(
        "id: sample\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: A sample.\nmutation: idempotent\n\
         primitiveSchema:\n  input_schema:\n    type: object\n    properties:\n{formats}\
         runtime: {{mode: proxy, http: {{url: \"https://api.example.com/x\", headers: {{Authorization: x}}}}}}\n"
    );
    let report = check(&[source("demo/sample.yaml", &text)]);
    let faults: Vec<_> =
        report.faults.iter().map(|fault| (fault.code.as_str(), fault.path.as_str())).collect();
    assert_eq!(faults, [("bad_header", "/runtime/http/headers/Authorization")]);
    assert!(report.catalog.is_none());
    assert_eq!(report.warnings.len(), 200, "they are bounded themselves");
}
