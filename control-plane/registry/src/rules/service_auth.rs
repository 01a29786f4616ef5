//! By what a call proves itself to the service behind it.
//!
//! Keeps true: exactly one way is written, for a way of running that has a service behind it; no secret stands in a
//! spec, only the name by which the operator keeps one.

use super::name;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Kind, Mode, Runtime, ServiceAuth, Spec};

/// Most scopes that an issuer is asked for, and bytes of an audience.
const MAX_SCOPES: usize = 64;
const MAX_AUDIENCE: usize = 2048;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    let Some(runtime) = &spec.runtime else { return };
    let Some(auth) = &runtime.auth else { return };
    let path = "/runtime/auth";
    if runtime.mode == Mode::Proxy && spec.kind == Kind::Delegate {
        let hint = "name the endpoint's key in `openai.apiKeyName`";
        findings.add(FaultCode::MisplacedKey, path, "a delegate has a key of its own", hint);
        return;
    }
    check_ways(auth, findings);
    check_plugin(spec, runtime, auth, findings);
    if let Some(exchange) = &auth.exchange {
        check_audience(&exchange.audience, "/runtime/auth/exchange/audience", findings);
        let path = "/runtime/auth/exchange/scopes";
        name::check_scopes(&exchange.scopes, path, findings);
        if exchange.scopes.len() > MAX_SCOPES {
            let message = format!("an issuer is asked for at most {MAX_SCOPES} scopes");
            findings.add(FaultCode::BadValue, path, message, "name what this primitive needs");
        }
    }
    if let Some(credential) = &auth.credential
        && !is_credential(credential)
    {
        let message = format!("`{}` is no name of a credential", name::shown(credential));
        let hint = "write the name that the operator gave it: 1 to 63 of the characters A-Z a-z 0-9 - _ .";
        findings.add(FaultCode::BadValue, "/runtime/auth/credential", message, hint);
    }
}

fn check_ways(auth: &ServiceAuth, findings: &mut Findings<'_>) {
    let ways = [
        ("token", auth.token.is_some()),
        ("exchange", auth.exchange.is_some()),
        ("credential", auth.credential.is_some()),
    ];
    let mut written = ways.iter().filter(|(_, written)| *written).map(|(key, _)| *key);
    let Some(first) = written.next() else {
        let hint = "write `token`, `exchange` or `credential`, or remove `auth`";
        findings.add(FaultCode::MissingKey, "/runtime/auth", "`auth` says nothing", hint);
        return;
    };
    for other in written {
        let message = format!("both `{first}` and `{other}`");
        let path = format!("/runtime/auth/{other}");
        findings.add(FaultCode::MisplacedKey, &path, message, "keep one of the two");
    }
}

/// A plugin has the platform's token for its domains in any case, and no one URL. The operator's secret stays outside of its
/// sandbox: whether its origin is among the domains is known where the secret is, at the gateway.
fn check_plugin(spec: &Spec, runtime: &Runtime, auth: &ServiceAuth, findings: &mut Findings<'_>) {
    if runtime.mode != Mode::Plugin {
        return;
    }
    if auth.token.is_some() {
        let hint = "remove it: the token is for the plugin's `allowedDomains`";
        let message = "a plugin gets the platform's token in any case";
        findings.add(FaultCode::MisplacedKey, "/runtime/auth/token", message, hint);
    }
    let shown = match (&auth.exchange, &auth.credential) {
        (Some(_), _) => "the token",
        (None, Some(_)) => "the credential",
        (None, None) => return,
    };
    if spec.security.allowed_domains.is_empty() {
        let hint = "list the hosts of the service in `security.allowedDomains`";
        let message = format!("the plugin may reach nobody to whom {shown} could be shown");
        findings.add(FaultCode::MissingKey, "/security/allowedDomains", message, hint);
    }
}

fn check_audience(audience: &str, path: &str, findings: &mut Findings<'_>) {
    let visible = audience.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    if audience.is_empty() || audience.len() > MAX_AUDIENCE || !visible {
        let hint = format!("write 1 to {MAX_AUDIENCE} visible ASCII characters, as the service calls itself");
        findings.add(FaultCode::BadValue, path, "this is no audience", &hint);
    }
}

fn is_credential(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(plain)
}
