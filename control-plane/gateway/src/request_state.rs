//! The sealed `requestState` of MCP 2026-07-28: which call a client's next request goes on with.
//!
//! Keeps true: a state is attacker input: it opens only for the same principal, server and request parameters, until it
//! expires, which is when the promise of its call does.

use std::time::Duration;

use asp_edge::Caller;
use serde_json::Value;
use uuid::Uuid;

use crate::call::Call;
use crate::call::principal::principal;
use crate::clock::unix_seconds;
use crate::digest;
use crate::seal::{Purpose, Sealer};

mod plain;

use plain::Plain;

/// What a state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestState {
    pub call: Uuid,
    /// The first event of the call that the client has not been shown, and the log that counts so.
    next_event: u64,
    stream: u32,
}

impl RequestState {
    /// Issues the state that goes on with `call` after event `next_event`; `life` is how long the call is promised for it.
    pub fn issue(
        sealer: &Sealer,
        call: &Call,
        digest: [u8; 32],
        next_event: u64,
        life: Duration,
    ) -> Option<String> {
        let plain = Plain {
            call: call.id,
            expires: unix_seconds() + life.as_secs(),
            next_event,
            stream: call.events.stream(),
        };
        let context = context(&call.caller, &call.server.message.name, digest);
        sealer.seal(Purpose::RequestState, &context, &plain.encode()).ok()
    }

    /// What a state says to whoever may go on with its call.
    pub fn open(
        sealer: &Sealer,
        state: &str,
        caller: &Caller,
        server: &str,
        digest: [u8; 32],
    ) -> Option<RequestState> {
        let plain = sealer.open(Purpose::RequestState, &context(caller, server, digest), state)?;
        let Plain { call, expires, next_event, stream } = Plain::decode(&plain)?;
        (expires >= unix_seconds()).then_some(RequestState { call, next_event, stream })
    }

    /// The first event of `call` to show; `None` where it counts anew, because it goes on at another gateway.
    pub fn next_event(&self, call: &Call) -> Option<u64> {
        call.events.counts(self.stream).then_some(self.next_event)
    }

    /// The digest of what a retry must repeat: the method, and the parameters without `_meta` and the retry's own
    /// members, in whatever order a client writes them.
    pub fn digest(method: &str, params: Option<&Value>) -> [u8; 32] {
        let mut params = params.cloned().unwrap_or(Value::Null);
        if let Some(object) = params.as_object_mut() {
            for own in ["_meta", "inputResponses", "requestState"] {
                object.remove(own);
            }
        }
        digest::of_parts(&[method, &digest::canonical(&params)])
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
        let digest = |params: &Value| RequestState::digest("tools/call", Some(params));
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
        assert_ne!(RequestState::digest("prompts/get", Some(&retry)), asked);
    }
}
