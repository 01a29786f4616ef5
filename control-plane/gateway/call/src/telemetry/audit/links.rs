//! Events about the accounts that users link at other services, and remove. They have no tokens.

use asp_store::audit::CallEvent;
use serde::Serialize;

use crate::clock::unix_ms;

/// One fact about a linked account.
#[derive(Clone, Copy, Debug)]
pub struct LinkFact<'a> {
    /// `link.add` or `link.remove`
    pub event: &'static str,
    pub org: &'a str,
    pub user: &'a str,
    /// Name of the user's issuer.
    pub issuer: &'a str,
    pub provider: &'a str,
    /// Server and primitive whose call asked for the account; empty for none.
    pub server: &'a str,
    pub primitive: &'a str,
    /// `completed`, `rejected` or `failed`
    pub outcome: &'static str,
    /// `ok`, or the reason why nothing was changed.
    pub reason: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LinkEvent<'a> {
    event: &'static str,
    user: &'a str,
    issuer: &'a str,
    provider: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    server: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    primitive: &'a str,
    outcome: &'static str,
    reason: &'static str,
}

/// Returns the event of a fact about a linked account.
pub fn link(fact: &LinkFact<'_>) -> CallEvent {
    let written = serde_json::to_string(&LinkEvent {
        event: fact.event,
        user: fact.user,
        issuer: fact.issuer,
        provider: fact.provider,
        server: fact.server,
        primitive: fact.primitive,
        outcome: fact.outcome,
        reason: fact.reason,
    });
    let at_ms = i64::try_from(unix_ms()).unwrap_or(i64::MAX);
    // Texts always serialize to JSON.
    CallEvent { at_ms, org: fact.org.to_owned(), event: written.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_who_provider_and_outcome_and_leaves_out_what_is_empty() {
        let fact = LinkFact {
            event: "link.remove",
            org: "acme",
            user: "alice",
            issuer: "dev",
            provider: "hub",
            server: "",
            primitive: "",
            outcome: "completed",
            reason: "ok",
        };
        let removed = link(&fact);
        let expected = r#"{"event":"link.remove","user":"alice","issuer":"dev","provider":"hub","outcome":"completed","reason":"ok"}"#;
        assert_eq!((removed.org.as_str(), removed.event.as_str()), ("acme", expected));
        assert!(removed.at_ms > 0);
        let added = link(&LinkFact { event: "link.add", server: "demo", primitive: "echo", ..fact });
        assert!(added.event.contains(r#""server":"demo","primitive":"echo""#), "{}", added.event);
    }
}
