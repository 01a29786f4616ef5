//! Conformance suite of [`ApprovalStore`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{
    ApprovalDecision, ApprovalQuery, ApprovalRequest, ApprovalState, ApprovalStore, Approver, GrantScope,
    MAX_OF_REQUESTER, RequestReceipt,
};

const CALL: [u8; 16] = [9; 16];

/// Returns a request of alice of `acme` for members of `finance`; requests of another `name` have another scope.
pub fn request(name: &str, number: u8) -> ApprovalRequest {
    let scope = GrantScope {
        org: "acme".into(),
        principal: [1; 16],
        server: "shop".into(),
        primitive: format!("{name}@1.0.0"),
        approvers: "finance".into(),
        approvers_iss: "https://login.example".into(),
        arguments: [2; 32],
        policy: [3; 32],
    };
    let mut id = [number; 16];
    id.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to ^= from);
    ApprovalRequest {
        id,
        scope,
        requester: "alice".into(),
        issuer: "login".into(),
        client: "cli".into(),
        is_machine: false,
        title: "Pay".into(),
        protocol: "mcp".into(),
        rule: "user:* shop.pay *".into(),
        shown: r#"{"amount":5}"#.into(),
        call: CALL,
    }
}

/// Returns a member of `finance` of `acme`.
pub fn approver(user: &str) -> Approver {
    Approver {
        org: "acme".into(),
        names: vec![user.into()],
        iss: "https://login.example".into(),
        groups: vec!["finance".into()],
        is_machine: false,
    }
}

fn yes() -> ApprovalDecision {
    ApprovalDecision { approved: true, by: "bob@acme".into(), reason: String::new() }
}

async fn state<S: ApprovalStore>(store: &S, request: &ApprovalRequest) -> ApprovalState {
    store.approval(request.id).await.unwrap().unwrap().state
}

/// Runs the suite against a store without requests.
pub async fn run<S: ApprovalStore + 'static>(store: Arc<S>) {
    a_grant_fits_its_own_scope_once(&*store).await;
    a_request_is_decided_once(&*store).await;
    equal_requests_are_one_while_it_is_open_or_granted(&*store).await;
    an_ended_grant_is_void_and_expires_once(&*store).await;
    of_many_that_use_a_grant_one_gets_it(store.clone()).await;
    a_notification_is_claimed_once_and_ends_with_the_decision(&*store).await;
    requests_are_bounded_and_listed(&*store).await;
}

/// Stores an open request and a grant.
pub async fn request_and_grant<S: ApprovalStore>(store: &S) {
    let [open, granted] = ["past-open", "past-granted"].map(|name| request(name, 1));
    store.request_approval(&open, true).await.unwrap();
    store.request_approval(&granted, false).await.unwrap();
    assert!(store.decide_approval(granted.id, &yes()).await.unwrap());
}

/// After their time is over, neither counts for anything, and each is reported as expired once.
pub async fn what_has_expired_is_void<S: ApprovalStore>(store: &S) {
    let [open, granted] = ["past-open", "past-granted"].map(|name| request(name, 1));
    assert_eq!(state(store, &open).await, ApprovalState::Expired);
    assert!(!store.decide_approval(open.id, &yes()).await.unwrap());
    assert!(!store.use_approval(granted.id, &granted.scope, CALL).await.unwrap());
    assert_eq!(store.expire_approvals(10).await.unwrap().len(), 2);
    assert_eq!(store.expire_approvals(10).await.unwrap().len(), 0);
    assert!(store.claim_notices([1; 16], Duration::ZERO, 10).await.unwrap().is_empty());
    let again = request("past-granted", 2);
    assert_eq!(store.request_approval(&again, false).await.unwrap(), RequestReceipt::Stored(again.id));
}

async fn a_grant_fits_its_own_scope_once<S: ApprovalStore>(store: &S) {
    let request = request("scope", 1);
    assert_eq!(store.request_approval(&request, false).await.unwrap(), RequestReceipt::Stored(request.id));
    let stored = store.approval(request.id).await.unwrap().unwrap();
    assert_eq!((&stored.request, stored.state), (&request, ApprovalState::Pending));
    assert!(!store.use_approval(request.id, &request.scope, CALL).await.unwrap(), "it is not approved");
    assert!(store.decide_approval(request.id, &yes()).await.unwrap());
    let own = request.scope.clone();
    let others = [
        GrantScope { org: "globex".into(), ..own.clone() },
        GrantScope { principal: [7; 16], ..own.clone() },
        GrantScope { server: "other".into(), ..own.clone() },
        GrantScope { primitive: "scope@1.0.1".into(), ..own.clone() },
        GrantScope { approvers: "ops".into(), ..own.clone() },
        GrantScope { approvers_iss: String::new(), ..own.clone() },
        GrantScope { arguments: [7; 32], ..own.clone() },
        GrantScope { policy: [7; 32], ..own.clone() },
    ];
    for other in &others {
        assert!(!store.use_approval(request.id, other, CALL).await.unwrap(), "{other:?}");
    }
    assert!(store.use_approval(request.id, &own, CALL).await.unwrap());
    assert!(!store.use_approval(request.id, &own, CALL).await.unwrap(), "it was used");
    assert_eq!(state(store, &request).await, ApprovalState::Used);
}

async fn a_request_is_decided_once<S: ApprovalStore>(store: &S) {
    let denied = request("decided", 1);
    store.request_approval(&denied, false).await.unwrap();
    let no = ApprovalDecision { approved: false, by: "bob@acme".into(), reason: "too much".into() };
    assert!(store.decide_approval(denied.id, &no).await.unwrap());
    assert!(!store.decide_approval(denied.id, &yes()).await.unwrap());
    assert!(!store.use_approval(denied.id, &denied.scope, CALL).await.unwrap());
    let stored = store.approval(denied.id).await.unwrap().unwrap();
    assert_eq!(
        (stored.state, &*stored.decided_by, &*stored.reason),
        (ApprovalState::Denied, "bob@acme", "too much")
    );
    let decided = store.decided_approvals(0, 100).await.unwrap();
    assert!(decided.contains(&(denied.id, stored.decided_ms)), "{decided:?}");
    assert!(
        store.decided_approvals(stored.decided_ms, 100).await.unwrap().iter().all(|(id, _)| *id != denied.id)
    );
    assert!(!store.decide_approval([0; 16], &yes()).await.unwrap(), "there is no such request");
}

async fn equal_requests_are_one_while_it_is_open_or_granted<S: ApprovalStore>(store: &S) {
    let [first, second, third] = [1, 2, 3].map(|number| request("equal", number));
    store.request_approval(&first, false).await.unwrap();
    assert_eq!(store.request_approval(&second, false).await.unwrap(), RequestReceipt::Joined(first.id));
    assert!(!store.withdraw_approval(first.id, [8; 16]).await.unwrap(), "another call stored it");
    assert!(store.decide_approval(first.id, &yes()).await.unwrap());
    assert_eq!(store.request_approval(&second, false).await.unwrap(), RequestReceipt::Joined(first.id));
    assert!(store.use_approval(first.id, &first.scope, CALL).await.unwrap());
    assert_eq!(store.request_approval(&second, false).await.unwrap(), RequestReceipt::Stored(second.id));
    assert!(store.withdraw_approval(second.id, CALL).await.unwrap());
    assert!(!store.decide_approval(second.id, &yes()).await.unwrap(), "it was withdrawn");
    assert_eq!(store.request_approval(&third, false).await.unwrap(), RequestReceipt::Stored(third.id));
    assert!(store.withdraw_approval(third.id, CALL).await.unwrap());
}

async fn an_ended_grant_is_void_and_expires_once<S: ApprovalStore>(store: &S) {
    let [ended, again] = [1, 2].map(|number| request("ended", number));
    store.request_approval(&ended, false).await.unwrap();
    assert!(!store.end_grant(ended.id).await.unwrap(), "an open request is no grant");
    assert!(store.decide_approval(ended.id, &yes()).await.unwrap());
    assert!(store.end_grant(ended.id).await.unwrap());
    assert!(!store.end_grant(ended.id).await.unwrap(), "it has ended");
    assert_eq!(state(store, &ended).await, ApprovalState::Expired);
    assert!(!store.use_approval(ended.id, &ended.scope, CALL).await.unwrap());
    let expired = store.expire_approvals(10).await.unwrap();
    assert_eq!(expired.iter().map(|one| one.request.id).collect::<Vec<_>>(), [ended.id]);
    assert_eq!(store.request_approval(&again, false).await.unwrap(), RequestReceipt::Stored(again.id));
    assert!(store.withdraw_approval(again.id, CALL).await.unwrap());
}

/// The race of two gateways for one grant.
async fn of_many_that_use_a_grant_one_gets_it<S: ApprovalStore + 'static>(store: Arc<S>) {
    for round in 0..5 {
        let request = request("race", round);
        assert_eq!(
            store.request_approval(&request, false).await.unwrap(),
            RequestReceipt::Stored(request.id)
        );
        assert!(store.decide_approval(request.id, &yes()).await.unwrap());
        let mut tries = JoinSet::new();
        for number in 0..8 {
            let store = store.clone();
            let request = request.clone();
            tries.spawn(async move {
                store.use_approval(request.id, &request.scope, [number; 16]).await.unwrap()
            });
        }
        let won = tries.join_all().await.into_iter().filter(|won| *won).count();
        assert_eq!(won, 1, "round {round}");
    }
}

async fn a_notification_is_claimed_once_and_ends_with_the_decision<S: ApprovalStore>(store: &S) {
    const LEASE: Duration = Duration::from_secs(3600);
    let [told, decided] = ["told", "decided-soon"].map(|name| request(name, 1));
    store.request_approval(&told, true).await.unwrap();
    store.request_approval(&decided, true).await.unwrap();
    assert!(store.decide_approval(decided.id, &yes()).await.unwrap());
    let claimed = store.claim_notices([1; 16], LEASE, 10).await.unwrap();
    assert_eq!(claimed.iter().map(|one| (one.request.id, one.notices)).collect::<Vec<_>>(), [(told.id, 1)]);
    assert!(store.claim_notices([2; 16], LEASE, 10).await.unwrap().is_empty());
    assert!(!store.end_notice(told.id, [2; 16]).await.unwrap(), "another claim");
    assert!(store.retry_notice(told.id, [1; 16], Duration::ZERO).await.unwrap());
    let again = store.claim_notices([3; 16], LEASE, 10).await.unwrap();
    assert_eq!(again.iter().map(|one| one.notices).collect::<Vec<_>>(), [2]);
    assert!(store.end_notice(told.id, [3; 16]).await.unwrap());
    assert!(store.claim_notices([4; 16], LEASE, 10).await.unwrap().is_empty());
    assert!(store.withdraw_approval(told.id, CALL).await.unwrap());
}

async fn requests_are_bounded_and_listed<S: ApprovalStore>(store: &S) {
    let of_bounded = |name: String| {
        let mut request = request(&name, 1);
        request.scope.org = "bounded".into();
        request.scope.principal = [5; 16];
        request.id = rand::random();
        request
    };
    for number in 0..MAX_OF_REQUESTER {
        let stored = store.request_approval(&of_bounded(format!("p{number}")), false).await.unwrap();
        assert!(matches!(stored, RequestReceipt::Stored(_)), "{number}: {stored:?}");
    }
    let more = of_bounded("more".into());
    assert_eq!(store.request_approval(&more, false).await.unwrap(), RequestReceipt::Full);
    let by_client =
        ApprovalRequest { scope: GrantScope { principal: [6; 16], ..more.scope.clone() }, ..more.clone() };
    let full = store.request_approval(&by_client, false).await.unwrap();
    assert_eq!(full, RequestReceipt::Full, "another client of the same user");
    let other = ApprovalRequest { requester: "carol".into(), ..by_client };
    assert_eq!(store.request_approval(&other, false).await.unwrap(), RequestReceipt::Stored(other.id));
    let query = ApprovalQuery { org: "bounded".into(), limit: 5, ..ApprovalQuery::default() };
    let page = store.approvals(&query).await.unwrap();
    assert_eq!((page.len(), page[0].request.id), (5, other.id));
    let next = ApprovalQuery { before: page.last().map(|last| last.seq), ..query.clone() };
    assert!(store.approvals(&next).await.unwrap().iter().all(|one| one.seq < page[4].seq));
    assert!(store.decide_approval(other.id, &yes()).await.unwrap());
    let approved = ApprovalQuery { state: Some(ApprovalState::Approved), ..query };
    let found = store.approvals(&approved).await.unwrap();
    assert_eq!(found.iter().map(|one| one.request.id).collect::<Vec<_>>(), [other.id]);
    assert_eq!(store.expire_approvals(10).await.unwrap().len(), 0, "nothing has expired yet");
}
