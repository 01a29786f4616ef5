//! Audiences of the platform's tokens, and the primitives that get them.
//!
//! Keeps true: a spec alone grants nothing: there is no token without an entry by the operator that names the
//! primitive. A plugin's token has one audience, because the plugin holds it and its service could use it at other
//! audiences.

use asp_call::call::Call;
use asp_outbound::Requester;
use asp_platform::operator_list::{self, ListEntry};
use asp_proto::snapshot::service_auth::Kind;
use reqwest::Url;

/// Name of the setting with the operator's list.
pub(super) const LIST: &str = "ASP_TOKEN_AUDIENCES";

/// The reason why a plugin's token has no audience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAudience {
    /// No entry serves the primitive at a host that it may reach.
    NoEntry,
    /// Entries of several origins serve it.
    Several,
    /// The plugin reaches no host, its spec names an audience not open to it, or there is no list.
    Settled,
}

/// The operator's list.
#[derive(Clone, Debug)]
pub enum TokenAudiences {
    /// Every origin for every primitive, in development without a list.
    Every,
    Listed(Vec<TokenAudience>),
}

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAudience {
    /// `scheme://host[:port]` as in specs.
    pub origin: String,
    /// Primitives that get tokens for it, in the form of `for` in an operator list.
    pub primitives: Vec<String>,
}

impl Default for TokenAudiences {
    fn default() -> TokenAudiences {
        TokenAudiences::Listed(Vec::new())
    }
}

impl TokenAudiences {
    /// Whether the primitive may get a token for this origin.
    pub(super) fn allows(&self, audience: &str, by: Requester<'_>) -> bool {
        match self {
            TokenAudiences::Every => true,
            TokenAudiences::Listed(listed) => {
                listed.iter().any(|entry| is_same(&entry.origin, audience) && entry.serves(by))
            }
        }
    }

    /// Returns the audience of a plugin's token: the one that its spec names, otherwise the only possible one.
    pub(super) fn of_plugin(&self, call: &Call) -> Result<String, NoAudience> {
        let by = requested_by(call);
        let domains = &call.entry.primitive.allowed_domains;
        match named(call) {
            Some(named) if is_reached(domains, named) && self.allows(named, by) => Ok(named.to_owned()),
            Some(_) => Err(NoAudience::Settled),
            None => self.only(domains, by),
        }
    }

    fn only(&self, domains: &[String], by: Requester<'_>) -> Result<String, NoAudience> {
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
        let is_settled = matches!(self, TokenAudiences::Every) || domains.is_empty();
        let Some(only) = candidates.pop() else {
            return Err(if is_settled { NoAudience::Settled } else { NoAudience::NoEntry });
        };
        match candidates.iter().all(|other| is_same(other, &only)) {
            true => Ok(only),
            false if is_settled => Err(NoAudience::Settled),
            false => Err(NoAudience::Several),
        }
    }

    /// Returns the setting changed so that exactly one entry serves the primitive. An entry that serves others too is
    /// not narrowed.
    pub(super) fn completed(&self, why: NoAudience, domains: &[String], by: Requester<'_>) -> String {
        let listed: &[TokenAudience] = match self {
            TokenAudiences::Every => &[],
            TokenAudiences::Listed(listed) => listed,
        };
        let pattern = format!("{}/{}", by.server, by.primitive);
        let mut entries: Vec<(ListEntry, bool)> = listed
            .iter()
            .map(|entry| {
                let TokenAudience { origin, primitives } = entry.clone();
                let serves = entry.serves(by) && is_reached(domains, &origin);
                (ListEntry { value: origin, patterns: Some(primitives) }, serves)
            })
            .collect();
        if why == NoAudience::Several {
            for (entry, _) in entries.iter_mut().filter(|(_, serves)| *serves).skip(1) {
                entry.patterns.iter_mut().for_each(|patterns| patterns.retain(|known| *known != pattern));
            }
        } else if let Some((entry, _)) =
            entries.iter_mut().find(|(entry, _)| is_reached(domains, &entry.value))
        {
            entry.patterns.get_or_insert_default().push(pattern);
        } else {
            let host = domains.iter().find(|domain| !domain.contains('*')).map_or("HOST", String::as_str);
            entries
                .push((ListEntry { value: format!("https://{host}"), patterns: Some(vec![pattern]) }, true));
        }
        let entries: Vec<ListEntry> = entries.into_iter().map(|(entry, _)| entry).collect();
        operator_list::completed(LIST, &entries)
    }
}

impl TokenAudience {
    fn serves(&self, by: Requester<'_>) -> bool {
        operator_list::allows(&self.primitives, by.server, by.primitive)
    }
}

/// Returns the primitive for which a call's token is minted.
pub(super) fn requested_by(call: &Call) -> Requester<'_> {
    Requester { server: &call.server.message.name, primitive: &call.entry.primitive.id }
}

/// Returns the audience that the call's spec names.
pub(super) fn named(call: &Call) -> Option<&str> {
    match call.entry.primitive.service_auth.as_ref()?.kind.as_ref()? {
        Kind::Token(token) => Some(&token.audience),
        Kind::Exchange(_) | Kind::Credential(_) | Kind::Linked(_) => None,
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
            let by = Requester { server, primitive };
            assert_eq!(listed.allows(audience, by), allowed, "{audience} {server}/{primitive}");
            assert!(!TokenAudiences::default().allows(audience, by), "nobody is listed");
        }
        let by = Requester { server: "crm", primitive: "find" };
        assert!(TokenAudiences::Every.allows("https://crm.example.com", by));
    }

    #[test]
    fn a_plugin_that_no_entry_or_several_serve_is_told_apart_with_the_line_to_paste() {
        let listed = |entries: &[(&str, &[&str])]| {
            let entry = |(origin, patterns): &(&str, &[&str])| TokenAudience {
                origin: (*origin).into(),
                primitives: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
            };
            TokenAudiences::Listed(entries.iter().map(entry).collect())
        };
        let by = Requester { server: "crm", primitive: "find" };
        let domains = ["a.example".to_owned(), "b.example".to_owned()];
        let (a, b): (&str, &str) = ("https://a.example", "https://b.example");
        for (list, why, line) in [
            (listed(&[]), NoAudience::NoEntry, "ASP_TOKEN_AUDIENCES='https://a.example;for=crm/find'"),
            (
                listed(&[("https://c.example", &["crm/*"]), (b, &["erp/*"])]),
                NoAudience::NoEntry,
                "ASP_TOKEN_AUDIENCES='https://c.example;for=crm/*,https://b.example;for=erp/* crm/find'",
            ),
            (
                listed(&[(a, &["crm/*"]), (b, &["erp/*", "crm/find"])]),
                NoAudience::Several,
                "ASP_TOKEN_AUDIENCES='https://a.example;for=crm/*,https://b.example;for=erp/*'",
            ),
        ] {
            assert_eq!(list.only(&domains, by), Err(why), "{list:?}");
            assert_eq!(list.completed(why, &domains, by), line);
        }
        assert_eq!(listed(&[(a, &["crm/*"]), (a, &["*"])]).only(&domains, by), Ok(a.to_owned()));
        assert_eq!(listed(&[]).only(&[], by), Err(NoAudience::Settled), "it reaches nobody");
        assert_eq!(TokenAudiences::Every.only(&domains, by), Err(NoAudience::Settled), "there is no list");
    }
}
