//! The revocations that a gateway receives from a second control plane.
//!
//! Keeps true: a revocation that either control plane has sent is in force; one from the second control plane is
//! dropped only when the followed one has reached its revision. The number of entries kept from the second's lists is
//! bounded.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use asp_proto::control::FollowRequest;
use asp_proto::control::revocations_client::RevocationsClient;
use asp_proto::snapshot::snapshot_part::Part;
use asp_proto::snapshot::{RecentRevocations, SnapshotPart};
use asp_snapshot::{PartChanges, parts};
use prost::Message;
use tokio::sync::mpsc;

use super::SubscriptionTarget;
use super::controls::{ControlPlane, resolve};

/// Wait before the other control planes are tried again after all of them failed.
const RETRY: Duration = Duration::from_secs(5);
/// Delay of each list. A followed control plane that can read its store publishes the same within half a second; then
/// nothing is applied twice.
const HOLD: Duration = Duration::from_millis(700);
/// Maximum size of a list of another control plane, in bytes: 65,536 tokens. Lists are short: older revocations are not
/// in them.
const MAX_LIST: usize = 1024 * 1024;
/// Bytes of an entry in `RecentRevocations.revoked`.
const ENTRY: usize = 16;
/// Maximum number of entries of merged lists; beyond it only the followed control plane's list is in force.
const MAX_MERGED: usize = 100_000;

/// Forwards the lists of any control plane other than the followed one, forever.
pub(super) async fn listen(
    target: Arc<SubscriptionTarget>,
    followed: ControlPlane,
    lists: mpsc::Sender<RecentRevocations>,
) -> Infallible {
    loop {
        for other in resolve(&target).await.into_iter().filter(|control| *control != followed) {
            if let Err(error) = forward(&target, &other, &lists).await {
                tracing::debug!(control = %other.uri, %error, "revocations of another control plane ended");
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn forward(
    target: &SubscriptionTarget,
    control: &ControlPlane,
    lists: &mpsc::Sender<RecentRevocations>,
) -> anyhow::Result<()> {
    let channel = control.connect(target).await?;
    let mut client = RevocationsClient::new(channel).max_decoding_message_size(MAX_LIST);
    let mut answers = client.follow(FollowRequest {}).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        tokio::time::sleep(HOLD).await;
        lists.send(RecentRevocations::decode(answer.recent.as_slice())?).await?;
    }
    Ok(())
}

/// The recent revocations in force here.
#[derive(Clone, Debug, Default)]
pub(super) struct RevocationLists {
    /// Last list from the followed control plane.
    own: Option<RecentRevocations>,
    /// Highest revision of such a list from any followed control plane: an older list is not applied.
    revision: u64,
    /// All entries from other control planes at revisions that the followed one has not reached, with the newest
    /// revision.
    ahead: Option<RecentRevocations>,
}

impl RevocationLists {
    /// Adds a list from another control plane if its revision is later than `in_force`; returns the part to apply if
    /// the list adds entries.
    pub(super) fn take(&mut self, list: RecentRevocations, in_force: u64) -> Option<SnapshotPart> {
        if list.revision <= in_force {
            return None;
        }
        let before = self.in_force();
        // Entries move from the recent list to the older one, which is not sent here.
        self.ahead = Some(match self.ahead.take() {
            Some(ahead) => {
                let revision = ahead.revision.max(list.revision);
                union(&ahead, &list).map_or(ahead, |all| RecentRevocations { revision, ..all })
            }
            None => list,
        });
        let after = self.in_force()?;
        (before.as_ref() != Some(&after)).then(|| part(after))
    }

    /// Adds the entries from other control planes to changes from the followed one that are about to be applied.
    pub(super) fn add_to(&mut self, revision: u64, changes: &mut PartChanges) {
        let own = changes.iter().rev().find_map(|(name, part)| match part {
            Some(SnapshotPart { part: Some(Part::Recent(recent)), .. }) if name == parts::RECENT => {
                Some(recent)
            }
            _ => None,
        });
        let is_new = own.is_some();
        if let Some(own) = own {
            self.revision = self.revision.max(own.revision);
            self.own = Some(own.clone());
        }
        let is_reached = self.ahead.as_ref().is_some_and(|ahead| ahead.revision <= revision);
        if is_reached {
            self.ahead = None;
        }
        if (is_new && self.ahead.is_some()) || is_reached {
            // If a name occurs twice, the last part counts.
            changes.extend(self.in_force().map(|list| (parts::RECENT.to_owned(), Some(part(list)))));
        }
    }

    /// Returns the merged list; `None` before the followed control plane has sent one.
    fn in_force(&self) -> Option<RecentRevocations> {
        let own = self.own.as_ref()?;
        let merged = self.ahead.as_ref().and_then(|ahead| union(own, ahead));
        let list = merged.unwrap_or_else(|| own.clone());
        Some(RecentRevocations { revision: self.revision, ..list })
    }
}

fn part(list: RecentRevocations) -> SnapshotPart {
    SnapshotPart { part: Some(Part::Recent(list)), ..SnapshotPart::default() }
}

/// Returns all entries of both lists, with the revision and the times of the first; `None` if there are too many.
fn union(first: &RecentRevocations, second: &RecentRevocations) -> Option<RecentRevocations> {
    let entries = |list: &RecentRevocations| list.revoked.len() / ENTRY + list.revoked_before.len();
    if entries(first) + entries(second) > MAX_MERGED {
        return None;
    }
    let tokens = [first, second].into_iter().flat_map(|list| list.revoked.as_chunks::<ENTRY>().0);
    let before = [first, second].into_iter().flat_map(|list| &list.revoked_before);
    let details = [first, second].into_iter().flat_map(|list| &list.tokens);
    Some(RecentRevocations {
        revoked: asp_registry::sorted_set(tokens.copied().collect()),
        revoked_before: asp_registry::latest(before.cloned().collect()),
        tokens: asp_registry::earliest(details.cloned().collect()),
        ..first.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(revision: u64, tokens: &[u8]) -> RecentRevocations {
        let revoked = tokens.iter().flat_map(|token| [*token; ENTRY]).collect();
        RecentRevocations { revision, since: revision, revoked, ..RecentRevocations::default() }
    }

    fn tokens(part: &SnapshotPart) -> Vec<u8> {
        let Some(Part::Recent(recent)) = &part.part else { panic!("{part:?}") };
        recent.revoked.iter().step_by(ENTRY).copied().collect()
    }

    /// Sends a revision of the followed control plane; returns the tokens of the recent list that is applied.
    fn push(merged: &mut RevocationLists, revision: u64, sent: Option<RecentRevocations>) -> Option<Vec<u8>> {
        let recent = sent.map(|list| (parts::RECENT.to_owned(), Some(part(list))));
        let mut changes: PartChanges = recent.into_iter().collect();
        merged.add_to(revision, &mut changes);
        changes.last().and_then(|(_, part)| part.as_ref()).map(tokens)
    }

    /// Invariant I-6: what was revoked stays so, whoever says less.
    #[test]
    fn what_another_one_knows_later_is_in_force_until_the_followed_one_has_come_to_it() {
        let mut merged = RevocationLists::default();
        assert_eq!(push(&mut merged, 10, Some(list(10, &[1]))), Some(vec![1]));
        assert!(merged.take(list(9, &[7]), 10).is_none(), "an older list says nothing new");
        let added = merged.take(list(12, &[1, 2]), 10).unwrap();
        assert_eq!(tokens(&added), [1, 2]);
        assert!(merged.take(list(12, &[1, 2]), 10).is_none(), "it is in force");
        let moved = merged.take(list(14, &[3]), 10).unwrap();
        assert_eq!(tokens(&moved), [1, 2, 3], "what is in the other one's long list by now stays");
        assert_eq!(push(&mut merged, 11, None), None, "another part changes, and the list stays as it is");
        assert_eq!(push(&mut merged, 12, Some(list(12, &[1, 2]))), Some(vec![1, 2, 3]));
        assert_eq!(
            push(&mut merged, 14, None),
            Some(vec![1, 2]),
            "it has come to it, and has the rest elsewhere"
        );
        assert_eq!(push(&mut merged, 15, Some(list(15, &[2]))), Some(vec![2]), "one was taken back");
    }

    /// Two control planes may have published the same at different revisions.
    #[test]
    fn a_list_of_an_earlier_revision_than_the_one_before_it_is_applied_with_what_is_added_to_it() {
        let mut merged = RevocationLists::default();
        push(&mut merged, 110, Some(list(105, &[1])));
        push(&mut merged, 110, Some(list(103, &[1])));
        let added = merged.take(list(112, &[2]), 110).unwrap();
        assert_eq!(tokens(&added), [1, 2]);
        assert!(matches!(added.part, Some(Part::Recent(recent)) if recent.revision == 105));
    }

    #[test]
    fn a_list_that_comes_before_the_first_snapshot_is_added_to_it() {
        let mut merged = RevocationLists::default();
        assert!(merged.take(list(12, &[2]), 0).is_none(), "there is nothing to add it to");
        assert_eq!(push(&mut merged, 10, Some(list(10, &[1]))), Some(vec![1, 2]));
    }

    #[test]
    fn a_user_is_revoked_through_the_later_moment_and_the_list_stays_that_of_the_followed_one() {
        let before = |not_after_iat| asp_proto::snapshot::RevokedBefore {
            org: "acme".into(),
            user: "alice".into(),
            not_after_iat,
            ..Default::default()
        };
        let own = RecentRevocations { revoked_before: vec![before(5)], until: 3, ..list(10, &[]) };
        let other = RecentRevocations { revoked_before: vec![before(9)], until: 8, ..list(12, &[]) };
        let both = union(&own, &other).unwrap();
        assert_eq!((both.revision, both.since, both.until), (10, 10, 3));
        assert_eq!(both.revoked_before, [before(9)]);
    }

    /// Invariant I-4.
    #[test]
    fn lists_that_are_too_long_together_leave_the_followed_ones_alone() {
        let mut merged = RevocationLists::default();
        push(&mut merged, 10, Some(list(10, &[1])));
        let long = RecentRevocations { revoked: vec![2; MAX_MERGED * ENTRY], ..list(12, &[]) };
        assert!(merged.take(long, 10).is_none());
        assert_eq!(push(&mut merged, 11, Some(list(11, &[1]))), Some(vec![1]));
    }
}
