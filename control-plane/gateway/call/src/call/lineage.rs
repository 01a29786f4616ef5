//! The agents through which a call came: a list of hops in the metadata of requests between agents.
//!
//! Owns: the name of a hop, the list's form in metadata, and its bounds. Keeps true: a chain of agents ends when it comes
//! back to a server that it has passed, or when it is too long. A hop reveals no address. A client's list grants nothing: it can
//! only end the client's own chain earlier.

use std::borrow::Cow;

use asp_json::{Json, Members, first_elements, string};
use serde_json::Value;

use super::outcome::Refusal;
use crate::digest;

/// Member of a request's metadata, and of a call's `_meta`, with the hops.
pub const LINEAGE: &str = "asp/lineage";
/// Maximum number of hops.
const MAX_HOPS: usize = 8;
/// Maximum length of a hop's name in bytes.
const MAX_HOP: usize = 64;

/// Hops of a call, the first one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage(Vec<String>);

/// Returns the lineage in a request's metadata as `_meta` of its call; empty if there is none.
pub fn passed(metadata: Option<&Json>) -> Members {
    let mut meta = Members::default();
    let lineage = metadata.and_then(|metadata| metadata.member(LINEAGE)).map(|list| Lineage::read(&list));
    if let Some(lineage) = lineage.filter(|lineage| !lineage.0.is_empty()) {
        meta.insert(LINEAGE, lineage.to_json());
    }
    meta
}

/// Returns the name of the hop at a server of the platform at `public_url`.
pub fn hop(public_url: &str, server: &str) -> String {
    digest::shortened(&["a2a hop", public_url, server]).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Lineage {
    /// Returns the hops in a call's `_meta`.
    pub fn of(meta: &Members) -> Lineage {
        meta.get(LINEAGE).map(Lineage::read).unwrap_or_default()
    }

    fn read(list: &Json) -> Lineage {
        // One hop more than the maximum is enough to end the chain.
        let hops = first_elements(list.text(), MAX_HOPS + 1).unwrap_or_default().into_iter();
        let named = hops.filter_map(string).filter(|hop| (1..=MAX_HOP).contains(&hop.len()));
        Lineage(named.map(Cow::into_owned).collect())
    }

    /// Adds a hop. Refuses one that is in the list already, and one that is too many.
    pub fn extend(mut self, hop: String) -> Result<Lineage, Refusal> {
        if self.0.contains(&hop) {
            let why =
                "agents delegate to each other in a circle: this request has come through this server before";
            return Err(Refusal::Barred(why.into()));
        }
        if self.0.len() >= MAX_HOPS {
            let why = format!("more than {MAX_HOPS} agents would delegate this request to each other");
            return Err(Refusal::Barred(why));
        }
        self.0.push(hop);
        Ok(self)
    }

    /// Returns the list for the metadata of a request.
    pub fn to_json(&self) -> Json {
        Value::from(self.0.clone()).into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lineage(list: Value) -> Lineage {
        Lineage::of(&passed(Some(&json!({"x": 1, LINEAGE: list}).into())))
    }

    #[test]
    fn a_chain_ends_where_it_has_been_and_where_it_is_too_long() {
        let first = Lineage::default().extend(hop("https://a", "s")).unwrap();
        let second =
            first.clone().extend(hop("https://a", "t")).unwrap().extend(hop("https://b", "s")).unwrap();
        let read = lineage(second.to_json().view().clone());
        assert_eq!(read, second);
        let cycle = read.extend(hop("https://a", "s")).unwrap_err();
        assert!(cycle.public_message().contains("in a circle"), "{cycle}");
        let mut long = Lineage::default();
        for number in 0..MAX_HOPS {
            long = long.extend(number.to_string()).unwrap();
        }
        assert!(long.extend("more".into()).unwrap_err().public_message().contains("more than 8"));
    }

    #[test]
    fn a_lineage_from_outside_is_bounded_and_may_be_anything() {
        for nothing in [json!(null), json!({}), json!("a"), json!([1, {}, "", "x".repeat(65)])] {
            assert_eq!(lineage(nothing.clone()), Lineage::default(), "{nothing}");
            assert!(passed(Some(&json!({LINEAGE: nothing}).into())).is_empty());
        }
        assert!(passed(None).is_empty());
        let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let long = lineage(json!(many));
        assert_eq!(long.0.len(), MAX_HOPS + 1);
        assert!(long.extend("more".into()).is_err());
    }

    #[test]
    fn a_hop_is_one_server_of_one_platform_and_reveals_neither() {
        let own = hop("https://a.example.com", "crm");
        assert_eq!((own.len(), &own), (32, &hop("https://a.example.com", "crm")));
        assert_ne!(own, hop("https://a.example.com", "shop"));
        assert_ne!(own, hop("https://b.example.com", "crm"));
        assert!(!own.contains("crm"));
    }
}
