//! Compilation of checked specs to the snapshot's messages.
//!
//! Owns the mapping of every spec key to its field in the snapshot. Refuses nothing: the input has passed every rule.
//! Keeps true: schemas are served as their author wrote them (key order kept), except that `nullable: true` becomes a
//! union with null.

mod card;
mod deprecation;
mod mcp;
mod server;

pub use mcp::compile_mcp;
pub(crate) use server::{ServerMember, compile_server, content_hash, exposed_names};

use asp_proto::snapshot::{self, proxy_a2a, proxy_http, runtime, worker};
use serde_json::{Value, json};

use crate::elicitation::requested_schema;
use crate::rules::{quantity, schema};
use crate::spec::{
    A2aProxy, AgentBinding, BodyFormat, Completer, CompletionSource, HttpProxy, Kind, Mode, Mutation,
    OpenaiProxy, Pool, PoolMode, Prefer, RequestBody, RiskClass, Runtime, Sampling, Scheme, Spec, bare_id,
    versioned,
};

/// Compiles one primitive.
pub(crate) fn compile_primitive(spec: &Spec) -> snapshot::Primitive {
    let mutation = spec.changes();
    let input = spec.schema.input_schema.as_ref().map(schema::without_nullable);
    let output = spec.schema.output_schema.as_ref().map(schema::without_nullable);
    snapshot::Primitive {
        id: spec.id.clone(),
        version: spec.version.clone(),
        kind: kind(spec.kind).into(),
        title: spec.name.clone(),
        summary: spec.summary.clone().unwrap_or_default(),
        mcp: mcp::definitions(spec, mutation, input.as_ref(), output.as_ref()),
        a2a_skill: card::skill(spec).map(|skill| skill.to_string()).unwrap_or_default(),
        a2a_text_argument: text_argument(spec).to_owned(),
        input_schema: input.map(|schema| schema.to_string()).unwrap_or_default(),
        output_schema: output.map(|schema| schema.to_string()).unwrap_or_default(),
        mutation: wire_mutation(mutation).into(),
        risk_class: risk_class(spec).into(),
        scopes: scopes(spec).to_vec(),
        max_runtime_seconds: spec.capabilities.max_runtime_seconds.unwrap_or(0),
        heartbeat_seconds: spec.progress_policy.as_ref().map_or(0, |policy| policy.heartbeat_seconds),
        input_timeout_seconds: spec.capabilities.input_timeout_seconds.unwrap_or(0),
        limit: spec.security.rate_limit_max.as_ref().map(|limit| snapshot::SpecLimit {
            invocation_count: limit.invocation_count,
            window_seconds: quantity::window_seconds(limit).unwrap_or(u32::MAX),
            concurrent_invocations: limit.concurrent_invocations.unwrap_or(0),
        }),
        elicitations: ids(&spec.dependencies.elicitations),
        delegations: ids(&spec.dependencies.delegations),
        runtime: runtime_of(spec),
        idempotency_argument: spec.idempotency.as_ref().map_or_else(String::new, |key| key.argument.clone()),
        supports_progress: spec.capabilities.supports_progress,
        supports_cancellation: spec.capabilities.supports_cancellation,
        allowed_domains: spec.security.allowed_domains.clone(),
        allowed_tcp: spec.security.allowed_tcp.clone(),
        question: question(spec).map(|question| question.to_string()).unwrap_or_default(),
        owner: spec.owner.clone(),
        artifact_schema: spec
            .schema
            .artifacts
            .as_ref()
            .map(|schema| schema::without_nullable(schema).to_string())
            .unwrap_or_default(),
        tags: spec.tags.clone(),
        prefer_platform: spec.schema.prefer == Some(Prefer::Platform),
        client_only: spec.schema.prefer == Some(Prefer::ClientOnly),
        asks_roots: spec.schema.roots.is_some(),
        sampling_tools: spec.schema.sampling.as_ref().is_some_and(|sampling| sampling.tools),
        elicitation_required: spec.capabilities.elicitation_required,
        task_required: spec.capabilities.task_required,
        task_after_input: spec.capabilities.task_after_input,
        poll_stream: spec.capabilities.poll_stream,
        completions: completions(spec),
        listed_by_runtime: spec.schema.listed.is_some(),
        watched_by_runtime: spec.schema.watched.is_some(),
        service_auth: service_auth(spec),
        deprecation: deprecation::compiled(spec),
    }
}

fn completions(spec: &Spec) -> Vec<snapshot::Completion> {
    let completions = spec.schema.completions.iter().flatten();
    completions
        .map(|(argument, offered)| {
            let (values, by_runtime) = match offered {
                CompletionSource::Values(values) => (values.clone(), false),
                CompletionSource::By(Completer::Plugin | Completer::Upstream) => (Vec::new(), true),
            };
            snapshot::Completion { argument: argument.clone(), values, by_runtime }
        })
        .collect()
}

fn text_argument(spec: &Spec) -> &str {
    let skill = spec.exposure.a2a.skill.as_ref();
    skill.and_then(|skill| skill.text_argument.as_deref()).unwrap_or_default()
}

fn scopes(spec: &Spec) -> &[String] {
    spec.security.auth.as_ref().map_or(&[], |auth| auth.scopes.as_slice())
}

fn ids(dependencies: &[crate::spec::Dependency]) -> Vec<String> {
    dependencies.iter().map(|dependency| bare_id(&dependency.id).to_string()).collect()
}

fn kind(kind: Kind) -> snapshot::Kind {
    match kind {
        Kind::Tool => snapshot::Kind::Tool,
        Kind::Task => snapshot::Kind::Task,
        Kind::Resource => snapshot::Kind::Resource,
        Kind::ResourceTemplate => snapshot::Kind::ResourceTemplate,
        Kind::Prompt => snapshot::Kind::Prompt,
        Kind::Elicitation => snapshot::Kind::Elicitation,
        Kind::Delegate => snapshot::Kind::Delegate,
    }
}

fn wire_mutation(mutation: Mutation) -> snapshot::Mutation {
    match mutation {
        Mutation::ReadOnly => snapshot::Mutation::ReadOnly,
        Mutation::Idempotent => snapshot::Mutation::Idempotent,
        Mutation::NonIdempotent => snapshot::Mutation::NonIdempotent,
        Mutation::Destructive => snapshot::Mutation::Destructive,
    }
}

fn risk_class(spec: &Spec) -> snapshot::RiskClass {
    match spec.security.risk_class.unwrap_or(RiskClass::Medium) {
        RiskClass::Low => snapshot::RiskClass::Low,
        RiskClass::Medium => snapshot::RiskClass::Medium,
        RiskClass::High => snapshot::RiskClass::High,
    }
}

pub(crate) fn wire_scheme(scheme: Scheme) -> snapshot::AuthScheme {
    match scheme {
        Scheme::Jwt => snapshot::AuthScheme::Jwt,
        Scheme::Opaque => snapshot::AuthScheme::Opaque,
        Scheme::Psk => snapshot::AuthScheme::Psk,
        Scheme::Mtls => snapshot::AuthScheme::Mtls,
        Scheme::None => snapshot::AuthScheme::None,
    }
}

fn runtime_of(spec: &Spec) -> Option<snapshot::Runtime> {
    let mode = match &spec.runtime {
        Some(runtime) => run(spec, runtime)?,
        None => runtime::Mode::Static(snapshot::Static { json: static_json(spec)?.to_string() }),
    };
    Some(snapshot::Runtime { mode: Some(mode) })
}

fn service_auth(spec: &Spec) -> Option<snapshot::ServiceAuth> {
    use snapshot::service_auth::Kind;
    let runtime = spec.runtime.as_ref()?;
    let auth = runtime.auth.as_ref()?;
    let http = runtime.http.as_ref().map(|http| &http.url);
    let mcp = runtime.mcp.as_ref().map(|mcp| &mcp.url);
    let calls = runtime.calls.as_ref().map(|calls| &calls.url);
    let url = http.or(mcp).or(calls).or(runtime.a2a.as_ref().map(|a2a| &a2a.url));
    if let Some(provider) = &auth.linked {
        let linked = snapshot::LinkedToken { provider: provider.clone(), scopes: auth.scopes.clone() };
        return Some(snapshot::ServiceAuth { kind: Some(Kind::Linked(linked)) });
    }
    let kind = match (&auth.token, &auth.exchange, &auth.credential) {
        (Some(token), _, _) => {
            let audience = url.map(|url| origin_of(url).to_owned()).or_else(|| token.audience.clone());
            Kind::Token(snapshot::MintedToken { audience: audience? })
        }
        (None, Some(exchange), _) => Kind::Exchange(snapshot::ExchangedToken {
            audience: exchange.audience.clone(),
            scopes: match exchange.scopes.is_empty() {
                true => spec.security.auth.iter().flat_map(|auth| auth.scopes.clone()).collect(),
                false => exchange.scopes.clone(),
            },
        }),
        (None, None, credential) => Kind::Credential(credential.clone()?),
    };
    Some(snapshot::ServiceAuth { kind: Some(kind) })
}

/// Returns `scheme://host[:port]` of a URL or URL template whose host contains no variables.
pub fn origin_of(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(start..).and_then(|rest| rest.find(['/', '?'])).map_or(url.len(), |at| start + at);
    url.get(..end).unwrap_or(url)
}

fn run(spec: &Spec, written: &Runtime) -> Option<runtime::Mode> {
    Some(match written.mode {
        Mode::Builtin => runtime::Mode::Builtin(snapshot::Builtin {
            entrypoint: written.entrypoint.clone().unwrap_or_default(),
        }),
        Mode::Plugin => runtime::Mode::Plugin(plugin(written)),
        Mode::McpStdio => runtime::Mode::McpStdio(snapshot::McpStdio {
            package: written.package.clone().unwrap_or_default(),
            tool: written.tool.clone().unwrap_or_else(|| spec.id.clone()),
            cpu_millis: cpu_millis(written),
            memory_bytes: memory_bytes(written),
            worker: Some(worker(written)),
            artifact_sha256: written.artifact_sha256.clone().unwrap_or_default(),
            pin: written.pin.clone().unwrap_or_default(),
        }),
        Mode::Proxy => match (&written.http, &written.mcp, &written.calls, &written.a2a) {
            (Some(http), _, _, _) => runtime::Mode::ProxyHttp(proxy_http(http)),
            (None, Some(mcp), _, _) => runtime::Mode::ProxyMcp(snapshot::ProxyMcp {
                url: mcp.url.clone(),
                tool: mcp.tool.clone().unwrap_or_else(|| spec.id.clone()),
                pin: mcp.pin.clone().unwrap_or_default(),
                pages: mcp.pages.clone(),
            }),
            (None, None, Some(calls), _) => runtime::Mode::ProxyCalls(snapshot::ProxyCalls {
                url: calls.url.clone(),
                tool: calls.tool.clone().unwrap_or_else(|| spec.id.clone()),
            }),
            (None, None, None, Some(a2a)) => runtime::Mode::ProxyA2a(proxy_a2a(a2a)),
            (None, None, None, None) => runtime::Mode::ProxyOpenai(proxy_openai(written.openai.as_ref()?)),
        },
        Mode::Primitive => runtime::Mode::Primitive(other_primitive(written.primitive.as_deref()?)),
    })
}

/// Compiles a reference to another primitive of the same server.
fn other_primitive(reference: &str) -> snapshot::OtherPrimitive {
    let (reference, major) = versioned(reference);
    snapshot::OtherPrimitive {
        id: bare_id(reference).to_string(),
        major: major.and_then(|major| major.parse().ok()),
    }
}

/// Compiles a runtime of mode `plugin`.
pub(crate) fn plugin(written: &Runtime) -> snapshot::Plugin {
    snapshot::Plugin {
        language: written.language.map_or_else(String::new, |language| language.word().into()),
        entrypoint: written.entrypoint.clone().unwrap_or_default(),
        cpu_millis: cpu_millis(written),
        memory_bytes: memory_bytes(written),
        artifact_sha256: written.artifact_sha256.clone().unwrap_or_default(),
        worker: Some(worker(written)),
        storage: written.storage.unwrap_or_default(),
        package: written.package.clone().unwrap_or_default(),
        secrets: written.secrets.clone(),
    }
}

fn cpu_millis(written: &Runtime) -> u32 {
    written.resources.as_ref().and_then(quantity::cpu_millis).unwrap_or(0)
}

fn memory_bytes(written: &Runtime) -> u64 {
    written.resources.as_ref().and_then(quantity::memory_bytes).unwrap_or(0)
}

fn worker(written: &Runtime) -> snapshot::Worker {
    let resources = written.resources.as_ref();
    let pool = written.pool.as_ref();
    let mode = pool.and_then(|pool| pool.mode).map(|mode| match mode {
        PoolMode::Warm => worker::Pool::Warm,
        PoolMode::Ephemeral => worker::Pool::Ephemeral,
    });
    let of_pool = |get: fn(&Pool) -> Option<u32>| pool.and_then(get).unwrap_or_default();
    snapshot::Worker {
        pids: resources.and_then(|resources| resources.pids).unwrap_or_default(),
        files: resources.and_then(|resources| resources.files).unwrap_or_default(),
        disk_bytes: resources.and_then(quantity::disk_bytes).unwrap_or_default(),
        log_bytes_per_second: resources.and_then(quantity::log_bytes).unwrap_or_default(),
        min_isolation: written.min_isolation.unwrap_or_default(),
        pool: mode.unwrap_or(worker::Pool::Unspecified).into(),
        min_workers: of_pool(|pool| pool.min),
        max_workers: of_pool(|pool| pool.max),
        concurrency: of_pool(|pool| pool.concurrency),
        idle_seconds: of_pool(|pool| pool.idle_seconds),
    }
}

fn proxy_http(http: &HttpProxy) -> snapshot::ProxyHttp {
    snapshot::ProxyHttp {
        method: http.method.word().into(),
        url: http.url.clone(),
        query: http.query.clone(),
        headers: http.headers.clone(),
        body: match &http.body {
            None => String::new(),
            Some(RequestBody::Word(word)) => word.clone(),
            Some(RequestBody::Pointers(pointers)) => json!(pointers).to_string(),
        },
        result: http.result.clone().unwrap_or_default(),
        timeout_ms: http.timeout_ms.unwrap_or(0),
        retries: http.retries,
        body_format: match http.body_format {
            BodyFormat::Json => proxy_http::BodyFormat::Unspecified,
            BodyFormat::Form => proxy_http::BodyFormat::Form,
            BodyFormat::Multipart => proxy_http::BodyFormat::Multipart,
        }
        .into(),
        body_styles: http
            .body_styles
            .iter()
            .map(|(name, style)| (name.clone(), style.word().to_owned()))
            .collect(),
    }
}

fn proxy_a2a(a2a: &A2aProxy) -> snapshot::ProxyA2a {
    let binding = match a2a.binding {
        AgentBinding::Jsonrpc => proxy_a2a::Binding::Jsonrpc,
        AgentBinding::Rest => proxy_a2a::Binding::Rest,
    };
    snapshot::ProxyA2a {
        url: a2a.url.clone(),
        skill: a2a.skill.clone().unwrap_or_default(),
        binding: binding.into(),
        version: a2a.version.word().into(),
        tenant: a2a.tenant.clone().unwrap_or_default(),
        text_argument: a2a.text_argument.clone().unwrap_or_default(),
        without_streams: !a2a.streaming,
        card: a2a.card.clone().unwrap_or_default(),
        pin: a2a.pin.clone().unwrap_or_default(),
        signers: a2a.signers.clone(),
        pages: a2a.pages.clone(),
    }
}

fn proxy_openai(openai: &OpenaiProxy) -> snapshot::ProxyOpenai {
    snapshot::ProxyOpenai {
        url: openai.url.clone(),
        model: openai.model.clone(),
        api_key_name: openai.api_key_name.clone().unwrap_or_default(),
        temperature: openai.temperature,
        max_tokens: openai.max_tokens.unwrap_or(0),
        timeout_ms: openai.timeout_ms.unwrap_or(0),
        headers: openai.headers.clone(),
        json_schema: openai.json_schema,
    }
}

/// Returns a prompt's messages or a resource's contents in MCP's form.
fn static_json(spec: &Spec) -> Option<Value> {
    if let Some(messages) = &spec.schema.messages {
        return Some(messages.iter().map(mcp::message).collect());
    }
    let contents = spec.schema.contents.as_ref()?;
    let uri = spec.schema.uri.as_deref().unwrap_or_default();
    Some(contents.iter().map(|item| mcp::contents(item, uri, spec.schema.mime_type.as_deref())).collect())
}

/// Returns the question of an elicitation, or the fixed part of a delegate's sampling request.
fn question(spec: &Spec) -> Option<Value> {
    match spec.kind {
        Kind::Elicitation => {
            let message = spec.schema.message.as_ref().or(spec.summary.as_ref()).unwrap_or(&spec.name);
            Some(match &spec.schema.url {
                Some(url) => json!({"message": message, "url": url}),
                None => json!({"message": message, "requestedSchema": requested_schema(spec)}),
            })
        }
        Kind::Delegate => Some(sampling(spec.schema.sampling.as_ref()?)),
        _ => None,
    }
}

fn sampling(sampling: &Sampling) -> Value {
    let mut request = json!({"maxTokens": sampling.max_tokens});
    let Some(object) = request.as_object_mut() else { return request };
    if let Some(prompt) = &sampling.system_prompt {
        object.insert("systemPrompt".into(), json!(prompt));
    }
    if let Some(temperature) = sampling.temperature {
        object.insert("temperature".into(), json!(temperature));
    }
    if !sampling.stop_sequences.is_empty() {
        object.insert("stopSequences".into(), json!(sampling.stop_sequences));
    }
    if let Some(context) = sampling.include_context {
        object.insert("includeContext".into(), json!(context.word()));
    }
    if !sampling.model_hints.is_empty() {
        let hints: Vec<_> = sampling.model_hints.iter().map(|name| json!({"name": name})).collect();
        object.insert("modelPreferences".into(), json!({"hints": hints}));
    }
    request
}

#[cfg(test)]
mod tests {
    use super::origin_of;

    #[test]
    fn the_origin_ends_before_path_and_query() {
        assert_eq!(origin_of("https://a.example.com/x/{id}?q=1"), "https://a.example.com");
        assert_eq!(origin_of("https://a.example.com?q=/1"), "https://a.example.com");
        assert_eq!(origin_of("http://a.example.com:8080"), "http://a.example.com:8080");
    }
}
