//! Conformance suite of [`LinkedAccounts`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{
    HolderId, LinkFilter, LinkId, LinkKey, LinkTokens, LinkedAccounts, bound_to_session, bound_to_token,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the key of a user of the org `acme`.
pub fn key(subject: &str, provider: &str) -> LinkKey {
    LinkKey {
        org: "acme".into(),
        issuer: "https://login.example".into(),
        subject: subject.into(),
        provider: provider.into(),
        bound: String::new(),
    }
}

/// Returns tokens whose access token lives for an hour.
pub fn tokens(text: &'static str, version: i64) -> LinkTokens {
    LinkTokens {
        version,
        scopes: "repo user".into(),
        renewable: true,
        access_life: Some(HOUR),
        sealed: Bytes::from_static(text.as_bytes()),
    }
}

async fn put<S: LinkedAccounts>(store: &S, id: LinkId, key: &LinkKey, version: i64) {
    store.put_link(id, key, &tokens("sealed", version), HOUR).await.unwrap();
}

/// Claims all removals that are due, and ends them; returns their ids.
async fn take_removed<S: LinkedAccounts>(store: &S) -> Vec<LinkId> {
    let claim: HolderId = [0xcc; 16];
    let mut ids = Vec::new();
    for removed in store.claim_removed(claim, HOUR, 100).await.unwrap() {
        assert!(store.end_removed(removed.id, claim).await.unwrap());
        ids.push(removed.id);
    }
    ids.sort_unstable();
    ids
}

/// Runs the suite against a store without links. Leaves a row in each table.
pub async fn run<S: LinkedAccounts>(store: &S) {
    providers_are_replaced_by_name(store).await;
    a_user_has_one_link_at_a_provider(store).await;
    one_holder_refreshes_and_only_the_link_that_it_read(store).await;
    a_dead_link_stays_dead_until_it_is_linked_again(store).await;
    tokens_of_an_ended_link_wait_for_their_revocation(store).await;
    an_expired_link_ends(store).await;
    a_bound_link_is_another_one_and_ends_with_its_session(store).await;
    a_state_is_used_once(store).await;
    assert!(store.put_provider("kept", "{}", &Bytes::from_static(b"s")).await.unwrap());
    put(store, [0xa0; 16], &key("kept", "kept"), 1).await;
    store.put_removed([0xa1; 16], "acme", "kept", &Bytes::from_static(b"s")).await.unwrap();
    assert!(store.use_state([0xa2; 16], HOUR).await.unwrap());
}

async fn providers_are_replaced_by_name<S: LinkedAccounts>(store: &S) {
    let secret = Bytes::from_static(b"sealed");
    assert_eq!(store.provider("github").await.unwrap(), None);
    assert!(store.put_provider("github", "{\"a\":1}", &secret).await.unwrap());
    let first = store.provider("github").await.unwrap().unwrap();
    assert!(store.put_provider("github", "{\"a\":2}", &Bytes::new()).await.unwrap());
    let second = store.provider("github").await.unwrap().unwrap();
    assert_eq!((first.document.as_str(), &first.sealed), ("{\"a\":1}", &secret));
    assert_eq!((second.document.as_str(), second.sealed.len()), ("{\"a\":2}", 0));
    assert!(second.revision > first.revision);
    assert_eq!(store.providers().await.unwrap(), [second]);
    put(store, [30; 16], &key("judy", "github"), 1).await;
    assert!(!store.delete_provider("github").await.unwrap(), "a link needs it");
    assert_eq!(store.remove_links(LinkFilter::default()).await.unwrap(), 1);
    assert!(!store.delete_provider("github").await.unwrap(), "a revocation needs it");
    assert_eq!(take_removed(store).await, [[30_u8; 16]]);
    assert!(store.delete_provider("github").await.unwrap());
    assert!(!store.delete_provider("github").await.unwrap());
}

async fn a_user_has_one_link_at_a_provider<S: LinkedAccounts>(store: &S) {
    let own = key("alice", "github");
    put(store, [1; 16], &own, 1).await;
    put(store, [2; 16], &own, 2).await;
    let others = [
        key("bob", "github"),
        key("alice", "google"),
        LinkKey { org: "globex".into(), ..own.clone() },
        LinkKey { issuer: "https://other.example".into(), ..own.clone() },
    ];
    for other in &others {
        assert_eq!(store.link(other).await.unwrap(), None, "{other:?}");
    }
    let found = store.link(&own).await.unwrap().unwrap();
    assert_eq!((found.id, found.version, found.is_live, found.renewable), ([2; 16], 2, true, true));
    assert_eq!((found.used_ms, &found.key, found.scopes.as_str()), (0, &own, "repo user"));
    let life = found.access_life.unwrap();
    assert!(life <= HOUR && life > HOUR / 2, "{life:?}");
    assert!(found.life <= HOUR && found.life > HOUR / 2, "{:?}", found.life);
    store.note_use([2; 16], HOUR).await.unwrap();
    let used = store.link(&own).await.unwrap().unwrap().used_ms;
    store.note_use([2; 16], HOUR).await.unwrap();
    assert!(used > 0 && store.link(&own).await.unwrap().unwrap().used_ms == used);
    assert!(store.reseal([2; 16], 2, &Bytes::from_static(b"again")).await.unwrap());
    assert!(!store.reseal([2; 16], 1, &Bytes::from_static(b"late")).await.unwrap());
    assert_eq!(store.link(&own).await.unwrap().unwrap().sealed, Bytes::from_static(b"again"));
    let forever = LinkTokens { access_life: None, renewable: false, ..tokens("s", 3) };
    store.put_link([3; 16], &own, &forever, HOUR).await.unwrap();
    let found = store.link(&own).await.unwrap().unwrap();
    assert_eq!((found.access_life, found.renewable), (None, false));
    assert_eq!(store.remove_links(LinkFilter::default()).await.unwrap(), 1);
    // The user's former tokens are not revoked: a provider may end the new ones with them.
    assert_eq!(take_removed(store).await, [[3_u8; 16]]);
}

async fn one_holder_refreshes_and_only_the_link_that_it_read<S: LinkedAccounts>(store: &S) {
    let own = key("carol", "github");
    put(store, [4; 16], &own, 1).await;
    let claim =
        async |version, by: u8, lease| store.claim_refresh([4; 16], version, [by; 16], lease).await.unwrap();
    let end = async |version, next| store.end_refresh([4; 16], version, &tokens("new", next)).await.unwrap();
    assert!(!claim(2, 1, HOUR).await, "another version");
    assert!(claim(1, 1, HOUR).await);
    assert!(!claim(1, 2, HOUR).await, "somebody has it");
    assert!(end(1, 2).await);
    assert!(!end(1, 3).await, "it has other tokens");
    assert_eq!(store.link(&own).await.unwrap().unwrap().version, 2);
    assert!(claim(2, 1, Duration::ZERO).await);
    assert!(claim(2, 2, HOUR).await, "the lease of the first is over");
    store.give_up_refresh([4; 16], [1; 16]).await.unwrap();
    assert!(!claim(2, 3, HOUR).await, "only the holder gives up");
    store.give_up_refresh([4; 16], [2; 16]).await.unwrap();
    assert!(claim(2, 3, Duration::ZERO).await);
    assert!(claim(2, 4, HOUR).await);
    assert!(end(2, 5).await, "tokens that come late, and after another claim, are the newest");
    assert!(!end(2, 6).await, "those of the other claim are older");
    assert!(claim(5, 3, HOUR).await, "the other claim is over");
    put(store, [5; 16], &own, 7).await;
    assert!(!end(5, 8).await, "linked again in between");
    assert_eq!(
        store.remove_links(LinkFilter { subject: "carol", ..LinkFilter::default() }).await.unwrap(),
        1
    );
    assert_eq!(take_removed(store).await, [[5_u8; 16]]);
}

async fn a_dead_link_stays_dead_until_it_is_linked_again<S: LinkedAccounts>(store: &S) {
    let own = key("dave", "github");
    put(store, [6; 16], &own, 1).await;
    assert!(!store.mark_dead([6; 16], 2).await.unwrap(), "another version");
    assert!(store.mark_dead([6; 16], 1).await.unwrap());
    assert!(!store.mark_dead([6; 16], 1).await.unwrap());
    assert!(!store.link(&own).await.unwrap().unwrap().is_live);
    assert!(!store.claim_refresh([6; 16], 1, [1; 16], HOUR).await.unwrap());
    put(store, [6; 16], &own, 3).await;
    assert!(store.claim_refresh([6; 16], 3, [1; 16], HOUR).await.unwrap());
    assert!(store.mark_dead([6; 16], 3).await.unwrap(), "a request had the former token");
    assert!(store.end_refresh([6; 16], 3, &tokens("new", 4)).await.unwrap());
    assert!(store.link(&own).await.unwrap().unwrap().is_live, "its tokens are new");
    assert!(store.mark_dead([6; 16], 4).await.unwrap());
    put(store, [7; 16], &own, 2).await;
    assert!(store.link(&own).await.unwrap().unwrap().is_live);
    assert_eq!(store.remove_links(LinkFilter { subject: "dave", ..LinkFilter::default() }).await.unwrap(), 1);
    assert_eq!(take_removed(store).await, [[7_u8; 16]]);
}

async fn tokens_of_an_ended_link_wait_for_their_revocation<S: LinkedAccounts>(store: &S) {
    put(store, [8; 16], &key("erin", "github"), 1).await;
    put(store, [9; 16], &key("erin", "google"), 1).await;
    put(store, [10; 16], &key("frank", "github"), 1).await;
    let of_erin = LinkFilter { org: "acme", subject: "erin", ..LinkFilter::default() };
    assert_eq!(store.links(of_erin, 10).await.unwrap().len(), 2);
    assert_eq!(store.links(of_erin, 1).await.unwrap().len(), 1);
    assert_eq!(store.remove_links(of_erin).await.unwrap(), 2);
    assert_eq!(store.remove_links(of_erin).await.unwrap(), 0);
    assert_eq!(store.link(&key("erin", "github")).await.unwrap(), None);
    let (first, second): (HolderId, HolderId) = ([1; 16], [2; 16]);
    let removed = store.claim_removed(first, HOUR, 10).await.unwrap();
    assert_eq!(removed.len(), 2);
    assert!(removed.iter().all(|one| one.attempts == 1 && one.org == "acme"), "{removed:?}");
    assert!(store.claim_removed(second, HOUR, 10).await.unwrap().is_empty());
    assert!(!store.end_removed([8; 16], second).await.unwrap());
    assert!(store.end_removed([9; 16], first).await.unwrap());
    assert!(store.retry_removed([8; 16], first, Duration::ZERO).await.unwrap());
    let again = store.claim_removed(second, HOUR, 10).await.unwrap();
    assert_eq!((again.len(), again[0].id, again[0].attempts), (1, [8; 16], 2));
    assert_eq!((again[0].provider.as_str(), &again[0].sealed[..]), ("github", &b"sealed"[..]));
    assert!(store.end_removed([8; 16], second).await.unwrap());
    let of_github = LinkFilter { provider: "github", ..LinkFilter::default() };
    assert_eq!(store.remove_links(of_github).await.unwrap(), 1);
    assert_eq!(take_removed(store).await, [[10_u8; 16]]);
}

async fn an_expired_link_ends<S: LinkedAccounts>(store: &S) {
    let own = key("grace", "github");
    store.put_link([11; 16], &own, &tokens("s", 1), Duration::ZERO).await.unwrap();
    put(store, [12; 16], &key("heidi", "github"), 1).await;
    assert_eq!(store.link(&own).await.unwrap(), None);
    assert_eq!(store.expire_links(10).await.unwrap(), 1);
    assert_eq!(store.expire_links(10).await.unwrap(), 0);
    assert_eq!(take_removed(store).await, [[11_u8; 16]]);
    assert_eq!(store.remove_links(LinkFilter::default()).await.unwrap(), 1);
    assert_eq!(take_removed(store).await, [[12_u8; 16]]);
}

async fn a_bound_link_is_another_one_and_ends_with_its_session<S: LinkedAccounts>(store: &S) {
    let lasting = key("judy", "github");
    let session = LinkKey { bound: bound_to_session("s-1"), ..lasting.clone() };
    let token = LinkKey { bound: bound_to_token("t-1"), ..lasting.clone() };
    for (id, key) in [(13, &lasting), (14, &session), (15, &token)] {
        assert_eq!(store.link(key).await.unwrap(), None, "{key:?}");
        put(store, [id; 16], key, 1).await;
    }
    assert_eq!(store.link(&session).await.unwrap().unwrap().key, session);
    let of = |bound| LinkFilter { bound, ..LinkFilter::default() };
    assert_eq!(store.links(of(&session.bound), 10).await.unwrap().len(), 1);
    assert_eq!(store.remove_links(of("session:t-1")).await.unwrap(), 0);
    assert_eq!(store.remove_links(of(&session.bound)).await.unwrap(), 1);
    assert_eq!(store.link(&session).await.unwrap(), None);
    assert_eq!(store.remove_links(of(&token.bound)).await.unwrap(), 1);
    assert!(store.link(&lasting).await.unwrap().is_some());
    assert_eq!(store.remove_links(LinkFilter { subject: "judy", ..LinkFilter::default() }).await.unwrap(), 1);
    assert_eq!(take_removed(store).await, [[13_u8; 16], [14; 16], [15; 16]]);
}

async fn a_state_is_used_once<S: LinkedAccounts>(store: &S) {
    assert!(store.use_state([1; 16], HOUR).await.unwrap());
    assert!(!store.use_state([1; 16], HOUR).await.unwrap());
    assert!(store.use_state([2; 16], HOUR).await.unwrap());
}

/// Processes that claim the refresh of one link at the same time: one gets it.
pub async fn one_of_many_claims_the_refresh<S: LinkedAccounts + 'static>(processes: &[Arc<S>]) {
    let first = processes.first().unwrap();
    first.put_link([20; 16], &key("ivan", "github"), &tokens("s", 1), HOUR).await.unwrap();
    let mut claims = JoinSet::new();
    for turn in 0..20_u8 {
        let store = Arc::clone(&processes[usize::from(turn) % processes.len()]);
        claims.spawn(async move { store.claim_refresh([20; 16], 1, [turn; 16], HOUR).await.unwrap() });
    }
    let won = claims.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
}
