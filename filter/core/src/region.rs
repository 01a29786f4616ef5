//! Home regions of orgs, and the treatment of requests that arrive elsewhere.
//!
//! Owns the snapshot's homes: the most specific entry counts, and an org without an entry is at home here. Keeps true:
//! a request is forwarded to another region at most once, even if two regions disagree. The org of a verified token
//! decides which region serves a request, never a value that a client sends.

use std::collections::HashMap;

use asp_proto::snapshot::Region;

use crate::error::SnapshotError;
use crate::names;

/// Request header for Envoy's router: the cluster that leads to another region.
pub(crate) const HEADER: &str = "x-asp-region";
/// Home region of the org. On a request, set by the edge of another region that forwarded it: the request is not
/// forwarded again. On a refusal, tells the client. Not an internal header, because the other region removes those.
pub(crate) const HOME_HEADER: &str = "asp-home-region";

/// Home regions of orgs. An org without an entry is at home here.
#[derive(Default)]
pub(crate) struct Homes {
    exact: HashMap<Box<str>, OrgHome>,
    /// Homes by prefix, longest first; the prefix of `*` is empty.
    prefixes: Vec<(Box<str>, OrgHome)>,
}

/// Home of an org.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OrgHome {
    Here,
    /// Another region, and Envoy's cluster that leads there.
    There {
        region: Box<str>,
        cluster: Box<str>,
    },
    /// A region that cannot be reached from here.
    Unknown {
        region: Box<str>,
    },
}

impl Homes {
    pub(crate) fn index(messages: &[Region]) -> Result<Homes, SnapshotError> {
        let mut homes = Homes::default();
        for (position, message) in messages.iter().enumerate() {
            let refused = |fault| SnapshotError::invalid(format!("regions[{position}]"), fault);
            // Both become header values.
            let visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
            if message.region.is_empty() || !visible(&message.region) || !visible(&message.cluster) {
                return Err(refused("has a region or cluster that is not visible ASCII"));
            }
            let region = message.region.as_str().into();
            let home = match message.cluster.as_str() {
                _ if message.here => OrgHome::Here,
                "" => OrgHome::Unknown { region },
                cluster => OrgHome::There { region, cluster: cluster.into() },
            };
            let is_new = match names::Pattern::read(&message.org) {
                names::Pattern::Exact("") => return Err(refused("has no org")),
                names::Pattern::Exact(org) => homes.exact.insert(org.into(), home).is_none(),
                names::Pattern::Prefix(prefix) => {
                    let is_new = homes.prefixes.iter().all(|(known, _)| **known != *prefix);
                    homes.prefixes.push((prefix.into(), home));
                    is_new
                }
            };
            if !is_new {
                return Err(refused("repeats the org of another entry"));
            }
        }
        homes.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(homes)
    }

    /// Returns the home of `org` if it is elsewhere. A caller without an org (`""`) is served here.
    pub(crate) fn foreign_home(&self, org: &str) -> Option<&OrgHome> {
        if org.is_empty() || (self.exact.is_empty() && self.prefixes.is_empty()) {
            return None;
        }
        let by_prefix = || self.prefixes.iter().find(|(prefix, _)| org.starts_with(&**prefix));
        let home = self.exact.get(org).or_else(|| by_prefix().map(|(_, home)| home))?;
        (*home != OrgHome::Here).then_some(home)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(org: &str, region: &str, cluster: &str) -> Region {
        Region { org: org.into(), region: region.into(), cluster: cluster.into(), here: cluster == "here" }
    }

    #[test]
    fn the_most_specific_entry_counts_and_an_org_without_one_is_at_home_here() {
        let homes = Homes::index(&[
            region("eu-*", "eu", "region-eu"),
            region("eu-own", "us", "here"),
            region("eu-gov-*", "gov", ""),
            region("acme", "eu", "region-eu"),
        ])
        .unwrap();
        let there = Some(&OrgHome::There { region: "eu".into(), cluster: "region-eu".into() });
        assert_eq!(homes.foreign_home("eu-one"), there);
        assert_eq!(homes.foreign_home("acme"), there);
        assert_eq!(homes.foreign_home("acme2"), None);
        assert_eq!(homes.foreign_home("eu-own"), None);
        assert_eq!(homes.foreign_home("eu-gov-x"), Some(&OrgHome::Unknown { region: "gov".into() }));
        assert_eq!(homes.foreign_home(""), None);
        let all = Homes::index(&[region("*", "eu", "region-eu"), region("acme", "us", "here")]).unwrap();
        assert_eq!((all.foreign_home("anybody"), all.foreign_home("acme")), (there, None));
        assert_eq!(Homes::default().foreign_home("acme"), None);
    }

    #[test]
    fn a_home_that_cannot_be_a_header_value_or_is_given_twice_is_refused() {
        let faulty = [
            vec![region("", "eu", "")],
            vec![region("acme", "", "c")],
            vec![region("acme", "e u", "c")],
            vec![region("acme", "eu", "a\r\nb")],
            vec![region("acme", "eu", "c"), region("acme", "us", "d")],
            vec![region("a*", "eu", "c"), region("a*", "us", "d")],
        ];
        for list in faulty {
            assert!(Homes::index(&list).is_err(), "{list:?}");
        }
    }
}
