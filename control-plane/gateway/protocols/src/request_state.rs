//! The sealed `requestState` of MCP 2026-07-28, which names the call that a client's next request continues.
//!
//! Keeps true: a state is attacker input: it opens only for the same principal, server and request parameters, until it
//! expires together with the promise of its call.

use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::principal::principal;
use asp_call::clock::unix_seconds;
use asp_call::digest;
use asp_call::seal::{Purpose, Sealer};
use asp_edge::Caller;
use asp_json::{Json, Members};
use serde_json::Value;

mod plain;

pub use plain::RequestState;

impl RequestState {
    /// Issues the state with which a client returns to `call` from event `next_event`; `life` is the duration of the
    /// promise.
    pub fn issue(
        sealer: &Sealer,
        call: &Call,
        digest: [u8; 32],
        next_event: u64,
        life: Duration,
    ) -> Option<String> {
        let state = RequestState {
            call: call.id,
            expires: unix_seconds() + life.as_secs(),
            next_event,
            stream: call.events.stream(),
        };
        let context = context(&call.caller, &call.server.message.name, digest);
        sealer.seal(Purpose::RequestState, &context, &state.encode()).ok()
    }

    /// Opens a state for a caller that may continue its call.
    pub fn open(
        sealer: &Sealer,
        state: &str,
        caller: &Caller,
        server: &str,
        digest: [u8; 32],
    ) -> Option<RequestState> {
        let plain = sealer.open(Purpose::RequestState, &context(caller, server, digest), state)?;
        RequestState::decode(&plain).filter(|state| state.expires >= unix_seconds())
    }

    /// Returns the first event of `call` to show; `None` if its numbers start again, because it continues at another
    /// gateway.
    pub fn next_event(&self, call: &Call) -> Option<u64> {
        call.events.counts(self.stream).then_some(self.next_event)
    }

    /// Returns the digest of what a retry must repeat: the method, and the parameters without `_meta` and the retry's
    /// own members, in any order of members.
    pub fn digest(method: &str, params: Option<&Json>) -> [u8; 32] {
        let repeated = params.map(|params| {
            let mut repeated = Members::of(params);
            repeated.retain(|name| !["_meta", "inputResponses", "requestState"].contains(&name));
            repeated.to_json()
        });
        digest::of_request(&[method], &repeated.unwrap_or_else(|| Value::Null.into()))
    }
}

fn context(caller: &Caller, server: &str, digest: [u8; 32]) -> Vec<u8> {
    [principal(caller).as_slice(), digest.as_slice(), server.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_retry_may_write_its_members_in_any_order_and_change_none_of_the_others() {
        let digest = |params: &Value| RequestState::digest("tools/call", Some(&params.clone().into()));
        let asked = digest(&json!({"name": "t", "arguments": {"a": 1, "b": 2}, "_meta": {"p": 1}}));
        let retry = json!({
            "inputResponses": {},
            "requestState": "s",
            "name": "t",
            "_meta": {"p": 2},
            "arguments": {"b": 2, "a": 1},
        });
        assert_eq!(digest(&retry), asked);
        assert_ne!(digest(&json!({"name": "t", "arguments": {"a": 1, "b": 3}})), asked);
        assert_ne!(digest(&json!({"name": "u", "arguments": {"a": 1, "b": 2}})), asked);
        assert_ne!(RequestState::digest("prompts/get", Some(&retry.into())), asked);
        let of = |text: &str| RequestState::digest("tools/call", Some(&Json::part(text)));
        assert_ne!(
            of(r#"{"arguments":{"n":123456789012345678901}}"#),
            of(r#"{"arguments":{"n":123456789012345678902}}"#)
        );
    }
}
