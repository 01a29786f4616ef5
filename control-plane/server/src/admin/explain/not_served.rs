//! Reasons why a stored primitive is not served: it or its server is disabled, or A2A is off.

use asp_store::control::ServerRecord;
use serde_json::{Value, json};

use crate::catalog::disabled::is_whole;

/// Returns why a primitive of a stored server is not published, or not over the protocol of the call.
pub(super) fn reason(stored: &ServerRecord, primitive: &str, is_a2a_off: bool) -> Option<Value> {
    let server = &stored.name;
    if is_whole(stored) {
        return Some(disabled(server, None));
    }
    if stored.disabled.iter().any(|disabled| disabled == primitive) {
        return Some(disabled(server, Some(primitive)));
    }
    is_a2a_off.then(|| a2a_off(server))
}

/// Returns the rule for a server that lists a2a while A2A is off.
fn a2a_off(server: &str) -> Value {
    let rule = format!(
        "A2A is off: {server} was applied by a version that did not serve it; apply it again, or confirm it with `asp \
         servers confirm {server} --protocol a2a`"
    );
    json!({ "stage": "protocol", "rule": rule })
}

/// Returns the rule for a disabled server or primitive.
fn disabled(server: &str, primitive: Option<&str>) -> Value {
    let (what, option) = match primitive {
        Some(primitive) => (format!("{primitive} of {server}"), format!(" --primitive {primitive}")),
        None => (server.to_owned(), String::new()),
    };
    let rule = format!("{what} is disabled; `asp servers enable {server}{option}` enables it");
    json!({ "stage": "server", "rule": rule })
}
