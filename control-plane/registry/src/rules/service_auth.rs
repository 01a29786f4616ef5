//! Authentication of a call to the service behind it.
//!
//! Keeps true: a spec states exactly one way, and only for a runtime that has a service behind it; it contains no
//! secret, only the names of those that the operator keeps.

use asp_platform::operator_list;

use super::name;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Kind, Mode, RiskClass, Runtime, ServiceAuth, Spec};

/// Maximum number of scopes requested from an issuer.
const MAX_SCOPES: usize = 64;
/// Maximum length of an audience in bytes.
const MAX_AUDIENCE: usize = 2048;
/// Maximum number of named secrets of one primitive.
const MAX_SECRETS: usize = 64;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    let Some(runtime) = &spec.runtime else { return };
    check_secrets(&runtime.secrets, findings);
    let Some(auth) = &runtime.auth else { return };
    let path = "/runtime/auth";
    if runtime.mode == Mode::Proxy && spec.kind == Kind::Delegate {
        let hint = "name the endpoint's key in `openai.apiKeyName`";
        findings.add(FaultCode::MisplacedKey, path, "a delegate has a key of its own", hint);
        return;
    }
    check_ways(auth, findings);
    check_plugin(spec, runtime, auth, findings);
    check_token(spec, runtime, auth, findings);
    check_linked(spec, runtime, auth, findings);
    if let Some(exchange) = &auth.exchange {
        check_audience(&exchange.audience, "/runtime/auth/exchange/audience", findings);
        let path = "/runtime/auth/exchange/scopes";
        name::check_scopes(&exchange.scopes, path, findings);
        if exchange.scopes.len() > MAX_SCOPES {
            let message = format!("at most {MAX_SCOPES} scopes can be requested from an issuer");
            findings.add(FaultCode::BadValue, path, message, "name what this primitive needs");
        }
    }
    if let Some(credential) = &auth.credential
        && !is_operators_name(credential)
    {
        let message = format!("`{}` is not the name of a credential", name::escape(credential));
        let hint = "write the name that the operator gave it: 1 to 63 of the characters A-Z a-z 0-9 - _ .";
        findings.add(FaultCode::BadValue, "/runtime/auth/credential", message, hint);
    }
}

fn check_secrets(names: &[String], findings: &mut Findings<'_>) {
    let path = "/runtime/secrets";
    if names.len() > MAX_SECRETS {
        let message = format!("a primitive has at most {MAX_SECRETS} secrets");
        findings.add(FaultCode::TooMany, path, message, "keep several values in one secret, as JSON");
    }
    for (index, secret) in names.iter().enumerate() {
        if !is_operators_name(secret) {
            let message = format!("`{}` is not the name of a secret", name::escape(secret));
            let hint =
                "write the name that the operator gave it: 1 to 63 of the characters A-Z a-z 0-9 - _ .";
            findings.add(FaultCode::BadValue, &format!("{path}/{index}"), message, hint);
        }
    }
}

/// Checks a linked account: its token is stored, so a primitive of high risk has none, and it never reaches a plugin.
fn check_linked(spec: &Spec, runtime: &Runtime, auth: &ServiceAuth, findings: &mut Findings<'_>) {
    let Some(provider) = &auth.linked else {
        if !auth.scopes.is_empty() {
            let hint = "write `linked`, or the scopes of an exchange into `exchange`";
            findings.add(FaultCode::MisplacedKey, "/runtime/auth/scopes", "scopes without `linked`", hint);
        }
        return;
    };
    let path = "/runtime/auth/linked";
    if !is_operators_name(provider) {
        let message = format!("`{}` is not the name of a provider", name::escape(provider));
        let hint = "write the name that the operator gave it: 1 to 63 of the characters A-Z a-z 0-9 - _ .";
        findings.add(FaultCode::BadValue, path, message, hint);
    }
    if runtime.mode == Mode::Plugin {
        let hint = "put a service that the primitive calls by `proxy` behind the linked account";
        findings.add(FaultCode::MisplacedKey, path, "a plugin gets no token of a linked account", hint);
    }
    if spec.security.risk_class == Some(RiskClass::High) {
        let hint = "use `exchange`, or lower `security.riskClass`";
        findings.add(
            FaultCode::MisplacedKey,
            path,
            "tokens of linked accounts are stored, and riskClass high forbids that",
            hint,
        );
    }
    let path = "/runtime/auth/scopes";
    name::check_scopes(&auth.scopes, path, findings);
    if auth.scopes.len() > MAX_SCOPES {
        let message = format!("at most {MAX_SCOPES} scopes can be requested from a provider");
        findings.add(FaultCode::BadValue, path, message, "name what this primitive needs");
    }
}

fn check_ways(auth: &ServiceAuth, findings: &mut Findings<'_>) {
    let ways = [
        ("token", auth.token.is_some()),
        ("exchange", auth.exchange.is_some()),
        ("credential", auth.credential.is_some()),
        ("linked", auth.linked.is_some()),
    ];
    let mut written = ways.iter().filter(|(_, written)| *written).map(|(key, _)| *key);
    let Some(first) = written.next() else {
        let hint = "write `token`, `exchange`, `credential` or `linked`, or remove `auth`";
        findings.add(FaultCode::MissingKey, "/runtime/auth", "`auth` is empty", hint);
        return;
    };
    for other in written {
        let message = format!("both `{first}` and `{other}`");
        let path = format!("/runtime/auth/{other}");
        findings.add(FaultCode::MisplacedKey, &path, message, "keep one of the two");
    }
}

/// Checks that a plugin with a token or credential may reach any host. An operator's secret stays outside its
/// sandbox; whether the secret's origin is among the domains is known only at the gateway, where the secret is.
fn check_plugin(spec: &Spec, runtime: &Runtime, auth: &ServiceAuth, findings: &mut Findings<'_>) {
    if runtime.mode != Mode::Plugin {
        return;
    }
    let shown = match (&auth.token, &auth.exchange, &auth.credential) {
        (Some(_), _, _) | (None, Some(_), _) => "the token",
        (None, None, Some(_)) => "the credential",
        (None, None, None) => return,
    };
    if spec.security.allowed_domains.is_empty() {
        let hint = "list the hosts of the service in `security.allowedDomains`";
        let message = format!("the plugin may not reach any host to send {shown} to");
        findings.add(FaultCode::MissingKey, "/security/allowedDomains", message, hint);
    }
}

/// Checks the audience: a plugin names the origin of one service; for a proxied primitive it is the origin of the
/// URL.
fn check_token(spec: &Spec, runtime: &Runtime, auth: &ServiceAuth, findings: &mut Findings<'_>) {
    let Some(token) = &auth.token else { return };
    let path = "/runtime/auth/token/audience";
    match (&token.audience, runtime.mode == Mode::Plugin) {
        (Some(audience), true) if !is_origin(audience) => {
            let message = format!("`{}` is not an origin", name::escape(audience));
            findings.add(
                FaultCode::BadValue,
                path,
                message,
                "write http(s)://host[:port] of the one service",
            );
        }
        (None, true) => {
            let hint = "write the origin of one service, or remove `token`: if only one is listed for the plugin, \
                it gets that one";
            findings.add(FaultCode::MissingKey, path, "a plugin's token is for one service", hint);
        }
        (Some(_), false) => {
            let hint = "remove it: the audience is the origin of the service's URL";
            findings.add(FaultCode::MisplacedKey, path, "the service's URL determines the audience", hint);
        }
        (Some(audience), true) if !reaches(&spec.security.allowed_domains, audience) => {
            let hint = "list its host in `security.allowedDomains`";
            findings.add(
                FaultCode::BadValue,
                path,
                "the plugin may not reach the service of its token",
                hint,
            );
        }
        (Some(_), true) | (None, false) => {}
    }
}

/// Whether an entry of `allowedDomains`, a host or `*.suffix`, matches the host of an origin. An empty list is a
/// separate finding.
fn reaches(domains: &[String], origin: &str) -> bool {
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    let host = authority.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let host = host.map_or(authority, |(host, _)| host);
    domains.is_empty() || domains.iter().any(|domain| operator_list::names_host(domain, host))
}

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let plain =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !host.is_empty() && host.len() <= MAX_AUDIENCE && host.chars().all(plain)
}

fn check_audience(audience: &str, path: &str, findings: &mut Findings<'_>) {
    let visible = audience.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    if audience.is_empty() || audience.len() > MAX_AUDIENCE || !visible {
        let hint = format!("write 1 to {MAX_AUDIENCE} visible ASCII characters, as the service calls itself");
        findings.add(FaultCode::BadValue, path, "not an audience", &hint);
    }
}

/// Whether a text can be the name of an operator's credential or secret.
fn is_operators_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(plain)
}
