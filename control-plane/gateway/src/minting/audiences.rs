//! Audiences that the platform's own token may be minted for, and the primitives that get it.
//!
//! Keeps true: a spec's word is no authority: without an entry of the operator that names the primitive there is no token. A
//! token of a plugin has one audience, because the plugin holds it and its service could show it at the others.

use asp_outbound::RequestedBy;
use asp_platform::operator_list;
use asp_proto::snapshot::service_auth::Kind;
use reqwest::Url;

use crate::call::Call;

/// The operator's list.
#[derive(Clone, Debug)]
pub enum TokenAudiences {
    /// Development without a list: every origin, for every primitive.
    Every,
    Listed(Vec<TokenAudience>),
}

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAudience {
    /// `scheme://host[:port]` as specs write it.
    pub origin: String,
    /// The primitives that get tokens for it, as `for` of an operator list names them.
    pub primitives: Vec<String>,
}

impl Default for TokenAudiences {
    fn default() -> TokenAudiences {
        TokenAudiences::Listed(Vec::new())
    }
}

impl TokenAudiences {
    /// Whether the primitive may get a token for this origin.
    pub(super) fn allows(&self, audience: &str, by: RequestedBy<'_>) -> bool {
        match self {
            TokenAudiences::Every => true,
            TokenAudiences::Listed(listed) => {
                listed.iter().any(|entry| is_same(&entry.origin, audience) && entry.serves(by))
            }
        }
    }

    /// The audience of a plugin's token: the one that its spec names, else the only one there can be.
    pub(super) fn of_plugin(&self, call: &Call) -> Option<String> {
        let by = requested_by(call);
        let domains = &call.entry.primitive.allowed_domains;
        if let Some(named) = named(call) {
            return (is_reached(domains, named) && self.allows(named, by)).then(|| named.to_owned());
        }
        let mut candidates: Vec<String> = match self {
            TokenAudiences::Every => {
                let exact = domains.iter().filter(|domain| !domain.contains('*'));
                let whole = exact.clone().count() == domains.len();
                exact.filter(|_| whole).map(|domain| format!("https://{domain}")).collect()
            }
            TokenAudiences::Listed(listed) => {
                let reached = |entry: &&TokenAudience| entry.serves(by) && is_reached(domains, &entry.origin);
                listed.iter().filter(reached).map(|entry| entry.origin.clone()).collect()
            }
        };
        let only = candidates.pop()?;
        candidates.iter().all(|other| is_same(other, &only)).then_some(only)
    }
}

impl TokenAudience {
    fn serves(&self, by: RequestedBy<'_>) -> bool {
        operator_list::allows(&self.primitives, by.server, by.primitive)
    }
}

/// The primitive that a call's token is minted for.
pub(super) fn requested_by(call: &Call) -> RequestedBy<'_> {
    RequestedBy { server: &call.server.message.name, primitive: &call.entry.primitive.id }
}

/// The audience that the call's spec names.
pub(super) fn named(call: &Call) -> Option<&str> {
    match call.entry.primitive.service_auth.as_ref()?.kind.as_ref()? {
        Kind::Token(token) => Some(&token.audience),
        Kind::Exchange(_) | Kind::Credential(_) => None,
    }
}

fn is_same(one: &str, other: &str) -> bool {
    let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
    origin(one).is_some_and(|one| origin(other) == Some(one))
}

/// Whether a plugin that may reach these `domains` reaches the host of an origin.
fn is_reached(domains: &[String], origin: &str) -> bool {
    let url = Url::parse(origin).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.is_some_and(|host| domains.iter().any(|domain| operator_list::names_host(domain, host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_origin_serves_the_primitives_it_names() {
        let entry = |origin: &str, pattern: &str| TokenAudience {
            origin: origin.into(),
            primitives: vec![pattern.into()],
        };
        let listed = TokenAudiences::Listed(vec![
            entry("https://crm.example.com", "crm/*"),
            entry("http://erp.internal:8080", "erp/order"),
        ]);
        for (audience, server, primitive, allowed) in [
            ("https://crm.example.com", "crm", "find", true),
            ("https://CRM.example.com:443", "crm", "find", true),
            ("https://crm.example.com", "weather", "find", false),
            ("http://crm.example.com", "crm", "find", false),
            ("https://crm.example.com:8443", "crm", "find", false),
            ("https://crm.example.com.evil.example", "crm", "find", false),
            ("https://erp.internal:8080", "erp", "order", false),
            ("http://erp.internal:8080", "erp", "order", true),
            ("http://erp.internal:8080", "erp", "orders", false),
            ("", "crm", "find", false),
        ] {
            let by = RequestedBy { server, primitive };
            assert_eq!(listed.allows(audience, by), allowed, "{audience} {server}/{primitive}");
            assert!(!TokenAudiences::default().allows(audience, by), "nobody is listed");
        }
        let by = RequestedBy { server: "crm", primitive: "find" };
        assert!(TokenAudiences::Every.allows("https://crm.example.com", by));
    }
}
