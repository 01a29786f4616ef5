//! Calls of the modern era that wait for input between two requests.
//!
//! Owns: the bounded table of suspended calls and the sealed `requestState` that names one. Keeps true: a
//! state is attacker input: it opens only for the same principal, server and request parameters, until it
//! expires, and a call that ended is gone from the table.

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::Caller;
use parking_lot::Mutex;
use serde_json::Value;
use uuid::Uuid;

use crate::call::Call;
use crate::call::principal::principal;
use crate::call::question::input_timeout;
use crate::clock::unix_seconds;
use crate::digest;
use crate::seal::{Purpose, Sealer};

/// Most suspended calls of one replica.
const MAX_SUSPENDED: usize = 10_000;
/// A state's life in seconds: the call's input timeout and a little more, so that a late answer finds its call
/// and is told that it came too late.
const STATE_SLACK: u64 = 600;

/// The suspended calls of one replica.
#[derive(Default)]
pub struct Suspended {
    calls: Mutex<HashMap<Uuid, Arc<Call>>>,
}

impl Suspended {
    /// Keeps `call` and returns its sealed state; `None` when the table is full.
    ///
    /// `next_event` is the first event of the call that the client has not been shown.
    pub fn suspend(
        &self,
        sealer: &Sealer,
        call: &Arc<Call>,
        digest: [u8; 32],
        next_event: u64,
    ) -> Option<String> {
        {
            let mut calls = self.calls.lock();
            if calls.len() >= MAX_SUSPENDED {
                calls.retain(|_, call| call.outcome().is_none());
            }
            if calls.len() >= MAX_SUSPENDED && !calls.contains_key(&call.id) {
                return None;
            }
            calls.insert(call.id, call.clone());
        }
        let mut plain = call.id.as_bytes().to_vec();
        let life = input_timeout(&call.entry.primitive).as_secs() + STATE_SLACK;
        plain.extend((unix_seconds() + life).to_be_bytes());
        plain.extend(next_event.to_be_bytes());
        let context = context(&call.caller, &call.server.message.name, digest);
        sealer.seal(Purpose::RequestState, &context, &plain).ok()
    }

    /// The call a state names, for whoever may continue it, and the event it goes on with.
    pub fn open(
        sealer: &Sealer,
        state: &str,
        caller: &Caller,
        server: &str,
        digest: [u8; 32],
    ) -> Option<(Uuid, u64)> {
        let plain = sealer.open(Purpose::RequestState, &context(caller, server, digest), state)?;
        let (id, rest) = plain.split_at_checked(16)?;
        let (expires, next_event) = rest.split_at_checked(8)?;
        let next_event = u64::from_be_bytes(next_event.try_into().ok()?);
        let expires = u64::from_be_bytes(expires.try_into().ok()?);
        if expires < unix_seconds() {
            return None;
        }
        Some((Uuid::from_slice(id).ok()?, next_event))
    }

    /// The suspended call with this id; `None` where it is none of this replica's.
    pub fn find(&self, id: Uuid) -> Option<Arc<Call>> {
        self.calls.lock().get(&id).cloned()
    }

    /// Forgets the calls that have ended; run from time to time.
    pub fn sweep(&self) {
        self.calls.lock().retain(|_, call| call.outcome().is_none());
    }

    /// The digest of what a retry must repeat: the parameters without `_meta` and the retry's own members, in
    /// whatever order a client writes them.
    pub fn digest(params: Option<&Value>) -> [u8; 32] {
        let mut params = params.cloned().unwrap_or(Value::Null);
        if let Some(object) = params.as_object_mut() {
            for own in ["_meta", "inputResponses", "requestState"] {
                object.remove(own);
            }
        }
        digest::of_parts(&[&digest::canonical(&params)])
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
        let asked =
            Suspended::digest(Some(&json!({"name": "t", "arguments": {"a": 1, "b": 2}, "_meta": {"p": 1}})));
        let retry = json!({
            "inputResponses": {},
            "requestState": "s",
            "name": "t",
            "_meta": {"p": 2},
            "arguments": {"b": 2, "a": 1},
        });
        assert_eq!(Suspended::digest(Some(&retry)), asked);
        assert_ne!(Suspended::digest(Some(&json!({"name": "t", "arguments": {"a": 1, "b": 3}}))), asked);
        assert_ne!(Suspended::digest(Some(&json!({"name": "u", "arguments": {"a": 1, "b": 2}}))), asked);
    }
}
