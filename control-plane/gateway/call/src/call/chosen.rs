//! The identity of a call whose id its client chose, as over REST. The same id from the same principal at the same
//! server is the same call, at every gateway and however often it is sent.
//!
//! Keeps true: the same id from another principal, or at another server, is another call; a repeated request can be
//! distinguished from one that reuses the id for another call.

use asp_edge::Caller;
use asp_json::Json;
use asp_proto::snapshot::{Primitive, Protocol};
use asp_snapshot::version;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Call;
use super::principal::principal;
use crate::clock::unix_ms;
use crate::digest;

/// Identity of a call whose id its client chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenId {
    id: [u8; 16],
    /// Digest of the arguments, as they were sent.
    arguments: [u8; 32],
    /// Major version of the primitive; `None` for a call of a gateway that did not keep it.
    #[serde(default)]
    major: Option<u64>,
    /// Start time in Unix milliseconds, which a chosen id does not contain.
    pub began_ms: u64,
}

impl ChosenId {
    /// Creates the identity of the call `name` of `caller` at `server`, with `arguments` for this version of a
    /// primitive.
    pub fn of(caller: &Caller, (server, name): (&str, &str), version: &str, arguments: &Json) -> ChosenId {
        ChosenId {
            id: id(caller, server, name).into_bytes(),
            arguments: digest::of_request(&[], arguments),
            major: Some(version::major(version)),
            began_ms: unix_ms(),
        }
    }

    /// Returns the identity of this call if another call of `caller` has its name: the content is part of it. `context`
    /// belongs to the content.
    pub fn by_content(self, caller: &Caller, (server, name): (&str, &str), context: &str) -> ChosenId {
        let principal = principal(caller);
        let parts: [&[u8]; 6] = [
            b"a call by its client's name and its content",
            &principal,
            server.as_bytes(),
            name.as_bytes(),
            context.as_bytes(),
            &self.arguments,
        ];
        ChosenId { id: uuid_of(digest::shortened(&parts)).into_bytes(), ..self }
    }

    /// Returns the same identity for this version of a primitive.
    pub fn for_version(self, version: &str) -> ChosenId {
        ChosenId { major: Some(version::major(version)), ..self }
    }

    pub fn id(&self) -> Uuid {
        Uuid::from_bytes(self.id)
    }

    /// Whether it was sent to this version, or to one that callers do not distinguish from it.
    pub fn is_of(&self, version: &str) -> bool {
        self.major.is_none_or(|major| major == version::major(version))
    }

    /// Whether both have the same arguments; the order of members does not matter.
    pub fn asks_the_same(&self, other: &ChosenId) -> bool {
        self.arguments == other.arguments
    }
}

/// Request that created a call under an id chosen by its client.
#[derive(Clone, Debug)]
pub struct Put {
    pub protocol: Protocol,
    /// The chosen id.
    pub name: String,
    /// Context with which the caller groups calls, or empty.
    pub context: String,
    /// Id of the primitive that it calls.
    pub primitive: String,
    pub key: Option<String>,
    pub chosen: ChosenId,
}

impl Put {
    /// Returns the request that created a call; `None` if its client did not choose the id.
    pub fn of(call: &Call) -> Option<Put> {
        Some(Put {
            protocol: call.protocol,
            name: call.protocol_request_id.clone(),
            context: call.context.clone(),
            primitive: call.entry.primitive.id.clone(),
            key: call.idempotency_key.clone(),
            chosen: call.chosen?,
        })
    }

    /// Whether it was sent to this primitive; another major version is another primitive.
    pub fn is_of(&self, primitive: &Primitive) -> bool {
        self.primitive == primitive.id && self.chosen.is_of(&primitive.version)
    }
}

/// Returns the id of the call `name` of `caller` at `server` (UUID version 8, RFC 9562 section 5.8).
pub fn id(caller: &Caller, server: &str, name: &str) -> Uuid {
    let principal = Uuid::from_bytes(principal(caller)).to_string();
    uuid_of(digest::shortened(&["a call by its client's name", &principal, server, name]))
}

fn uuid_of(digest: [u8; 16]) -> Uuid {
    uuid::Builder::from_custom_bytes(digest).into_uuid()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::call::testkit::caller;

    #[test]
    fn an_id_belongs_to_one_principal_at_one_server() {
        let alice = caller("alice");
        let own = id(&alice, "demo", "1");
        assert_eq!(own, id(&alice, "demo", "1"));
        assert_eq!(own.get_version_num(), 8);
        for other in [
            id(&caller("bob"), "demo", "1"),
            id(&Caller { client: "app".into(), ..caller("alice") }, "demo", "1"),
            id(&alice, "shop", "1"),
            id(&alice, "demo", "2"),
        ] {
            assert_ne!(own, other);
        }
    }

    #[test]
    fn the_same_arguments_are_the_same_request_whatever_their_order() {
        let put = |arguments: serde_json::Value| {
            ChosenId::of(&caller("alice"), ("demo", "1"), "1.0.0", &arguments.into())
        };
        let first = put(json!({"a": 1, "b": [2]}));
        assert!(first.asks_the_same(&put(json!({"b": [2], "a": 1}))));
        assert!(!first.asks_the_same(&put(json!({"a": 1, "b": [3]}))));
    }

    #[test]
    fn calls_of_one_name_are_distinguished_by_their_content() {
        let alice = caller("alice");
        let of = |name: &str, context: &str, arguments: serde_json::Value| {
            let chosen = ChosenId::of(&alice, ("demo", name), "1.0.0", &arguments.into());
            chosen.by_content(&alice, ("demo", name), context)
        };
        let own = of("1", "", json!({"a": 1, "b": 2}));
        assert_eq!(own.id(), of("1", "", json!({"b": 2, "a": 1})).id());
        assert_eq!(own.id().get_version_num(), 8);
        let by_name = id(&alice, "demo", "1");
        let others = [
            of("1", "c", json!({"a": 1, "b": 2})),
            of("1", "", json!({})),
            of("2", "", json!({"a": 1, "b": 2})),
        ];
        for other in others.map(|other| other.id()).into_iter().chain([by_name]) {
            assert_ne!(own.id(), other);
        }
        assert!(own.for_version("2.0.0").is_of("2.1.0") && own.is_of("1.1.0"));
    }

    #[test]
    fn a_major_version_is_one_primitive_and_another_one_is_not() {
        let put = ChosenId::of(&caller("alice"), ("demo", "1"), "1.3.0", &json!({}).into());
        assert_eq!(
            ["1.3.0", "1.12.1", "2.0.0", "0.1.0"].map(|version| put.is_of(version)),
            [true, true, false, false]
        );
        let mut earlier = serde_json::to_value(put).unwrap();
        earlier.as_object_mut().unwrap().remove("major");
        let earlier: ChosenId = serde_json::from_value(earlier).unwrap();
        assert!(earlier.is_of("2.0.0"), "an earlier gateway did not say");
    }
}
