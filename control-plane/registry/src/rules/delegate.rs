//! Rules of delegates: a model or another primitive answers them.
//!
//! Keeps true: a model's key is neither stored in a spec nor quoted in a fault. All other code runs as a tool, which
//! a delegate may name.

use super::{name, proxy};
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Kind, Mode, OpenaiProxy, Prefer, Runtime, Spec, bare_id, versioned};

/// Maximum length of the name of a model in bytes.
const MAX_MODEL: usize = 200;
/// Maximum length of the name of an operator's key in bytes; keys themselves are longer.
const MAX_KEY_NAME: usize = 32;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    if spec.kind == Kind::Delegate {
        check_client(spec, findings);
    }
    let Some(runtime) = &spec.runtime else { return };
    if spec.kind != Kind::Delegate {
        let delegates = [
            ("openai", "/runtime/openai", runtime.openai.is_some()),
            ("mode: primitive", "/runtime/mode", runtime.mode == Mode::Primitive),
        ];
        for (key, path, written) in delegates {
            if written {
                let message = format!("`{key}` is for delegates, not for a {}", spec.kind.word());
                findings.add(FaultCode::MisplacedKey, path, message, "correct `mode` or `type`");
            }
        }
        return;
    }
    match runtime.mode {
        Mode::Proxy => check_proxy(runtime, findings),
        Mode::Primitive => check_primitive(spec, runtime, findings),
        Mode::Builtin | Mode::Plugin | Mode::McpStdio => {
            let message = "a delegate cannot run in this mode";
            let hint = "make it a tool, and name it with mode: primitive";
            findings.add(FaultCode::MisplacedKey, "/runtime/mode", message, hint);
        }
    }
}

/// Rejects other answers for a delegate that only the client answers, and conversations with the platform's models that an
/// input schema would not cover.
fn check_client(spec: &Spec, findings: &mut Findings<'_>) {
    let schema = &spec.schema;
    let only_client = schema.roots.is_some() || schema.prefer == Some(Prefer::ClientOnly);
    if schema.sampling.as_ref().is_some_and(|sampling| sampling.tools)
        && schema.input_schema.is_some()
        && (spec.runtime.is_some() || schema.prefer == Some(Prefer::Platform))
    {
        let message = "the platform's models answer no conversation for a delegate with an input schema, because a conversation is not checked against it";
        let hint = "remove `input_schema`, or `sampling.tools`";
        findings.add(FaultCode::MisplacedKey, "/primitiveSchema/input_schema", message, hint);
    }
    let others = [
        ("/primitiveSchema/sampling", schema.roots.is_some() && schema.sampling.is_some()),
        ("/primitiveSchema/prefer", schema.roots.is_some() && schema.prefer == Some(Prefer::Platform)),
        ("/runtime", only_client && spec.runtime.is_some()),
    ];
    for (path, written) in others {
        if written {
            let message = "only the client answers this delegate";
            let hint = "keep either this, or `roots` and `prefer: client_only`";
            findings.add(FaultCode::MisplacedKey, path, message, hint);
        }
    }
}

fn check_proxy(runtime: &Runtime, findings: &mut Findings<'_>) {
    match &runtime.openai {
        Some(openai) => check_openai(openai, findings),
        None => {
            let message = "a delegate is answered by a model";
            findings.add(FaultCode::MissingKey, "/runtime/openai", message, "add `openai`");
        }
    }
    let others = [
        ("http", runtime.http.is_some()),
        ("mcp", runtime.mcp.is_some()),
        ("calls", runtime.calls.is_some()),
        ("a2a", runtime.a2a.is_some()),
    ];
    for (key, written) in others {
        if written {
            let message = format!("`{key}` forwards calls, but a delegate receives none");
            let hint = "make it a tool, and name it with mode: primitive";
            findings.add(FaultCode::MisplacedKey, &format!("/runtime/{key}"), message, hint);
        }
    }
}

fn check_primitive(spec: &Spec, runtime: &Runtime, findings: &mut Findings<'_>) {
    let for_models = [("sampling", spec.schema.sampling.is_some()), ("prefer", spec.schema.prefer.is_some())];
    for (key, written) in for_models {
        if written {
            let message = format!("`{key}` is for a model, and a primitive answers");
            let path = format!("/primitiveSchema/{key}");
            findings.add(FaultCode::MisplacedKey, &path, message, format!("remove `{key}`"));
        }
    }
    if let Some(reference) = &runtime.primitive
        && !name::is_name(bare_id(versioned(reference).0))
    {
        let message = format!("`{}` is not an id", name::escape(reference));
        findings.add(
            FaultCode::BadId,
            "/runtime/primitive",
            message,
            "write id or folder/id, and @1 after it for its major version 1",
        );
    }
}

fn check_openai(openai: &OpenaiProxy, findings: &mut Findings<'_>) {
    let path = "/runtime/openai/url";
    proxy::check_url(&openai.url, path, findings);
    if openai.url.contains(['?', '#', '{', '}']) {
        let hint = "write the base alone, e.g. https://llm.internal/v1";
        findings.add(FaultCode::BadUrl, path, "this is more than a base URL", hint);
    }
    if openai.model.is_empty() || openai.model.len() > MAX_MODEL {
        let message = format!("a model's name has 1 to {MAX_MODEL} bytes");
        findings.add(FaultCode::BadValue, "/runtime/openai/model", message, "write the endpoint's own name");
    }
    if let Some(key) = &openai.api_key_name {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if key.is_empty() || key.len() > MAX_KEY_NAME || !key.bytes().all(plain) {
            // The value is not quoted: somebody may have pasted the key itself.
            let hint = "name an entry of ASP_DELEGATE_KEYS (a-z 0-9 - _); never write the key itself here";
            findings.add(FaultCode::BadValue, "/runtime/openai/apiKeyName", "not the name of a key", hint);
        }
    }
    for (key, value) in &openai.headers {
        let path = format!("/runtime/openai/headers/{}", crate::document::escape(key));
        proxy::check_header(key, &path, findings);
        if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            findings.add(FaultCode::BadHeader, &path, "not a header value", "write printable ASCII");
        }
    }
}
