//! Events about the accounts that users link at other services, and remove. They have no tokens.

use asp_store::audit::CallEvent;
use serde::Serialize;

use super::event_now;

/// One fact about a linked account.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LinkFact<'a> {
    /// `link.add` or `link.remove`
    pub event: &'static str,
    #[serde(skip)]
    pub org: &'a str,
    pub user: &'a str,
    /// Name of the user's issuer.
    pub issuer: &'a str,
    pub provider: &'a str,
    /// Server and primitive whose call asked for the account; empty for none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub server: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub primitive: &'a str,
    /// `completed`, `rejected` or `failed`
    pub outcome: &'static str,
    /// `ok`, or the reason why nothing was changed.
    pub reason: &'static str,
}

/// Returns the event of a fact about a linked account.
pub fn link(fact: &LinkFact<'_>) -> CallEvent {
    event_now(fact.org, fact)
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
