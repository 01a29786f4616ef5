//! Requests of proxied calls and their destination.
//!
//! Keeps true: the author fixes the host, never an argument; a spec contains no credential; every mapping refers to
//! something that exists. The gateway checks the resolved address again at each call.

mod body;

use serde_json::Value;

use super::{name, prompt, uri};
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{A2aProxy, CallsProxy, HttpProxy, Kind, Spec};
use crate::uri_template::{self, UriTemplate};

/// Maximum number of pages to which one upstream may send users.
const MAX_PAGES: usize = 16;
/// Maximum number of keys that may sign one agent's card.
const MAX_SIGNERS: usize = 16;
/// Maximum length of a skill's id and of a tenant, in bytes.
const MAX_AGENT_NAME: usize = 256;
/// Headers that carry credentials, frame the message, identify the caller, or belong to the platform.
const REFUSED_HEADERS: [&str; 21] = [
    "authorization",
    "caller-org",
    "caller-user",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-deadline-ms",
    "x-real-ip",
];
/// Prefixes of such headers: the platform's, and those with which proxies identify callers.
const REFUSED_PREFIXES: [&str; 3] = ["x-asp-", "x-envoy-", "x-forwarded-"];

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    let Some(runtime) = &spec.runtime else { return };
    if let Some(mcp) = &runtime.mcp {
        check_url(&mcp.url, "/runtime/mcp/url", findings);
        check_pages(&mcp.pages, "/runtime/mcp/pages", findings);
    }
    let of_server = runtime.mcp.as_ref().and_then(|mcp| mcp.pin.as_ref());
    let of_agent = runtime.a2a.as_ref().and_then(|a2a| a2a.pin.as_ref());
    for (path, pin) in [
        ("/runtime/mcp/pin", of_server),
        ("/runtime/a2a/pin", of_agent),
        ("/runtime/pin", runtime.pin.as_ref()),
    ] {
        if pin.is_some_and(|pin| !is_digest(pin)) {
            let hint = "leave it as `asp import` writes it, or leave it out";
            findings.add(FaultCode::BadValue, path, "not a digest of an upstream's item", hint);
        }
    }
    if let Some(calls) = &runtime.calls {
        check_calls(calls, findings);
    }
    if let Some(a2a) = &runtime.a2a {
        check_a2a(spec, a2a, findings);
    }
    if let Some(http) = &runtime.http {
        check_http(spec, http, findings);
    }
}

/// Whether a text is a SHA-256 in lower-case hex.
fn is_digest(pin: &str) -> bool {
    pin.len() == 64 && pin.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn check_pages(pages: &[String], path: &str, findings: &mut Findings<'_>) {
    for (number, page) in pages.iter().enumerate() {
        prompt::check_address(page, &format!("{path}/{number}"), findings);
    }
    if pages.len() > MAX_PAGES {
        let message = format!("an upstream sends users to at most {MAX_PAGES} pages");
        findings.add(FaultCode::BadValue, path, message, "name a folder above several");
    }
}

fn check_a2a(spec: &Spec, a2a: &A2aProxy, findings: &mut Findings<'_>) {
    if !matches!(spec.kind, Kind::Tool | Kind::Task | Kind::Delegate) {
        let message = format!("an agent has skills, and no {}", spec.kind.word());
        findings.add(FaultCode::MisplacedKey, "/runtime/a2a", message, "correct `type`, or remove `a2a`");
    }
    check_url(&a2a.url, "/runtime/a2a/url", findings);
    if let Some(card) = &a2a.card {
        check_url(card, "/runtime/a2a/card", findings);
    }
    check_pages(&a2a.pages, "/runtime/a2a/pages", findings);
    for (key, name) in [("skill", &a2a.skill), ("tenant", &a2a.tenant)] {
        let fits =
            |name: &String| (1..=MAX_AGENT_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
        if name.as_ref().is_some_and(|name| !fits(name)) {
            let message = format!("not the name of a {key}");
            let hint = "write it as the agent's card does, or leave it out";
            findings.add(FaultCode::BadValue, &format!("/runtime/a2a/{key}"), message, hint);
        }
    }
    let is_signer = |signer: &String| {
        signer.len() == 43 && signer.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    for number in a2a.signers.iter().enumerate().filter(|(_, key)| !is_signer(key)).map(|(number, _)| number)
    {
        let path = format!("/runtime/a2a/signers/{number}");
        let hint = "leave it as `asp import` writes it, or remove it";
        findings.add(FaultCode::BadValue, &path, "not the thumbprint of a key", hint);
    }
    if a2a.signers.len() > MAX_SIGNERS {
        let message = format!("at most {MAX_SIGNERS} keys may sign a card");
        findings.add(FaultCode::BadValue, "/runtime/a2a/signers", message, "remove keys that no longer sign");
    }
}

fn check_calls(calls: &CallsProxy, findings: &mut Findings<'_>) {
    let path = "/runtime/calls/url";
    check_url(&calls.url, path, findings);
    if calls.url.contains('?') {
        let hint = "write the base URL alone; the platform appends the path of each call";
        findings.add(FaultCode::BadUrl, path, "a base URL has no query", hint);
    }
    if let Some(tool) = &calls.tool
        && !name::is_name(tool)
    {
        let message = format!("`{}` is not a tool name", name::escape(tool));
        let hint = "use 1 to 128 of the characters A-Z a-z 0-9 _ . -";
        findings.add(FaultCode::BadEntrypoint, "/runtime/calls/tool", message, hint);
    }
}

pub(super) fn check_url(url: &str, path: &str, findings: &mut Findings<'_>) {
    match uri::http_url(url) {
        Err(reason) => {
            let hint = "write https://host/path with a plain host and no credentials";
            findings.add(FaultCode::BadUrl, path, reason, hint);
        }
        // A name under .internal (reserved for private use) already implies an upstream entry of the operator.
        Ok(parsed) if parsed.host.ends_with(".internal") => {}
        Ok(parsed) if !parsed.is_https || uri::is_private_host(parsed.host) => {
            let message = format!("{} is plain http or private", name::escape(parsed.host));
            let hint = "the operator must add an upstream entry for it";
            findings.add(FaultCode::PrivateUpstream, path, message, hint);
        }
        Ok(_) => {}
    }
}

fn check_http(spec: &Spec, http: &HttpProxy, findings: &mut Findings<'_>) {
    let arguments = SpecArguments::of(spec);
    check_url_template(http, &arguments, findings);
    for (key, template) in &http.query {
        let path = format!("/runtime/http/query/{}", crate::document::escape(key));
        match uri_template::exploded(template) {
            Some(argument) => check_argument(argument, &path, &arguments, findings),
            None => drop(check_template(template, &path, &arguments, findings)),
        }
    }
    for (key, template) in &http.headers {
        let path = format!("/runtime/http/headers/{}", crate::document::escape(key));
        check_header(key, &path, findings);
        check_template(template, &path, &arguments, findings);
    }
    body::check(http, &arguments, findings);
    if let Some(pointer) = &http.result {
        check_pointer(pointer, "/runtime/http/result", None, findings);
    }
}

fn check_url_template(http: &HttpProxy, arguments: &SpecArguments<'_>, findings: &mut Findings<'_>) {
    let path = "/runtime/http/url";
    let Some(template) = check_template(&http.url, path, arguments, findings) else { return };
    check_url(&template.sample_uri(), path, findings);
    let authority = http.url.split_once("://").map_or("", |(_, rest)| rest);
    if authority.split(['/', '?']).next().is_some_and(|authority| authority.contains(['{', '}'])) {
        let hint = "write the host in full; only path and query may contain arguments";
        findings.add(FaultCode::BadUrl, path, "an argument would choose the host", hint);
    }
    for variable in template.variables() {
        if arguments.knows(variable) && !arguments.always(variable) {
            let message = format!("`{variable}` may be absent, and the URL would have a hole");
            let hint = "make the argument required or give it a default";
            findings.add(FaultCode::BadMapping, path, message, hint);
        }
    }
}

/// Checks a text as a template over the arguments.
fn check_template(
    template: &str,
    path: &str,
    arguments: &SpecArguments<'_>,
    findings: &mut Findings<'_>,
) -> Option<UriTemplate> {
    match UriTemplate::parse(template) {
        Err(fault) => {
            let hint = "use plain {name} expressions (RFC 6570 level 1)";
            findings.add(FaultCode::BadUriTemplate, path, fault.to_string(), hint);
            None
        }
        Ok(template) => {
            for variable in template.variables() {
                check_argument(variable, path, arguments, findings);
            }
            Some(template)
        }
    }
}

fn check_argument(argument: &str, path: &str, arguments: &SpecArguments<'_>, findings: &mut Findings<'_>) {
    if !arguments.knows(argument) {
        let message = format!("no argument is called `{}`", name::escape(argument));
        let hint = "name a top-level property of the input schema";
        findings.add(FaultCode::BadMapping, path, message, hint);
    }
}

/// Whether specs may not set a header of this name.
pub fn is_refused_header(name: &str) -> bool {
    // CGI (RFC 3875 section 4.1.18) and its descendants read `_` as `-`.
    let name_there = name.to_ascii_lowercase().replace('_', "-");
    REFUSED_HEADERS.contains(&name_there.as_str())
        || REFUSED_PREFIXES.iter().any(|prefix| name_there.starts_with(prefix))
}

pub(super) fn check_header(key: &str, path: &str, findings: &mut Findings<'_>) {
    let is_token = !key.is_empty() && key.bytes().all(is_token_byte);
    if !is_token || is_refused_header(key) {
        let message = format!("a spec may not set the header `{}`", name::escape(key));
        let hint = "remove it; the platform supplies credentials, framing and the caller's identity";
        findings.add(FaultCode::BadHeader, path, message, hint);
    }
}

/// Whether a byte may be part of a token (RFC 9110 section 5.6.2).
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn check_pointer(
    pointer: &str,
    path: &str,
    arguments: Option<&SpecArguments<'_>>,
    findings: &mut Findings<'_>,
) {
    let escapes_fit = pointer.split('~').skip(1).all(|part| part.starts_with('0') || part.starts_with('1'));
    if !(pointer.is_empty() || pointer.starts_with('/')) || !escapes_fit {
        let message = format!("`{}` is not a JSON pointer", name::escape(pointer));
        findings.add(
            FaultCode::BadMapping,
            path,
            message,
            "write /key/inner, or an empty text for all of it",
        );
        return;
    }
    let Some(arguments) = arguments else { return };
    let Some(first) = pointer.split('/').nth(1) else { return };
    let first = first.replace("~1", "/").replace("~0", "~");
    check_argument(&first, path, arguments, findings);
}

/// The arguments of a call, by the spec's kind.
struct SpecArguments<'a> {
    spec: &'a Spec,
}

impl<'a> SpecArguments<'a> {
    fn of(spec: &'a Spec) -> SpecArguments<'a> {
        SpecArguments { spec }
    }

    fn knows(&self, argument: &str) -> bool {
        match self.spec.kind {
            Kind::Prompt => self.spec.schema.arguments.iter().flatten().any(|known| known.name == argument),
            Kind::ResourceTemplate => self.in_template(argument),
            _ => self.property(argument).is_some(),
        }
    }

    /// Whether every call has a value for the argument.
    fn always(&self, argument: &str) -> bool {
        match self.spec.kind {
            Kind::Prompt => self
                .spec
                .schema
                .arguments
                .iter()
                .flatten()
                .any(|known| known.name == argument && known.required),
            Kind::ResourceTemplate => self.in_template(argument),
            _ => {
                let schema = self.spec.schema.input_schema.as_ref();
                let required = schema.and_then(|schema| schema.get("required")).and_then(Value::as_array);
                required.is_some_and(|list| list.iter().any(|name| name == argument))
                    || self.property(argument).is_some_and(|property| property.get("default").is_some())
            }
        }
    }

    /// Returns the schema of the argument at a JSON pointer, if `properties` alone lead to it.
    fn at(&self, pointer: &str) -> Option<&'a Value> {
        let mut names =
            pointer.strip_prefix('/')?.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
        let first = self.property(&names.next()?)?;
        names.try_fold(first, |schema, name| schema.get("properties")?.get(name))
    }

    fn property(&self, argument: &str) -> Option<&'a Value> {
        self.spec.schema.input_schema.as_ref()?.get("properties")?.get(argument)
    }

    fn in_template(&self, argument: &str) -> bool {
        let template = self.spec.schema.uri_template.as_deref().unwrap_or_default();
        UriTemplate::parse(template).is_ok_and(|template| template.variables().any(|name| name == argument))
    }
}
