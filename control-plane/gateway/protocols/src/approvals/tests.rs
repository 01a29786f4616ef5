//! Tests of what the pages seal.

use asp_call::clock::{unix_ms, unix_seconds};
use asp_call::seal::Sealer;

use super::session::{ApproverSession, PendingLogin};
use super::*;
use asp_pipeline::pipeline::approvals::ApprovalRequest;

fn sealer() -> Sealer {
    Sealer::new(&[7; 32], None).unwrap()
}

fn caller(groups: &[&str]) -> Caller {
    Caller {
        org: "acme".into(),
        user: "bob".into(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        scopes: vec!["a".into()],
        client: "browser".into(),
        wcit: "t".into(),
        digest: [1; 32],
        issuer: "login".into(),
        issued_at: 1,
        expires_at: unix_seconds() + 600,
    }
}

fn request(id: ApprovalId) -> ApprovalRequest {
    ApprovalRequest {
        id,
        scope: asp_pipeline::pipeline::approvals::GrantScope {
            org: "acme".into(),
            principal: [0; 16],
            server: "shop".into(),
            primitive: "pay@1.0.0".into(),
            approvers: "finance".into(),
            approvers_iss: String::new(),
            arguments: [0; 32],
            policy: [0; 32],
        },
        requester: "alice".into(),
        issuer: "login".into(),
        client: "cli".into(),
        is_machine: false,
        title: "Pay".into(),
        protocol: "mcp".into(),
        rule: String::new(),
        shown: "{}".into(),
        call: [0; 16],
    }
}

#[test]
fn an_address_names_one_request_for_its_time_and_opens_only_with_the_key() {
    let now = i64::try_from(unix_ms()).unwrap();
    let sealed = address::seal(&sealer(), [3; 16], now).unwrap();
    assert_eq!(address::open(&sealer(), &sealed), Some([3; 16]));
    assert_eq!(address::open(&Sealer::new(&[8; 32], None).unwrap(), &sealed), None);
    assert_eq!(address::open(&sealer(), &format!("{sealed}A")), None);
    assert_eq!(address::open(&sealer(), ""), None);
    let past = address::seal(&sealer(), [3; 16], now - 4_000_000).unwrap();
    assert_eq!(address::open(&sealer(), &past), None);
}

#[test]
fn a_session_is_for_one_request_and_has_only_the_group_that_decides() {
    let pending = PendingLogin::new("address", &request([3; 16]));
    let opened = PendingLogin::open(&sealer(), &pending.seal(&sealer()).unwrap()).unwrap();
    assert_eq!((&*opened.address, &*opened.server), ("address", "shop"));
    let many: Vec<String> = (0..200).map(|number| format!("group-{number}")).collect();
    let groups: Vec<&str> = many.iter().map(String::as_str).chain(["finance"]).collect();
    let cookie = ApproverSession::cookie(&sealer(), &opened, &caller(&groups)).unwrap();
    assert!(cookie.len() < 2_048, "{}", cookie.len());
    let session = ApproverSession::open(&sealer(), &cookie).unwrap();
    assert_eq!((session.approval, session.caller.groups.clone()), ([3; 16], vec!["finance".to_owned()]));
    assert!(session.caller.scopes.is_empty());
    assert!(PendingLogin::open(&sealer(), &cookie).is_none(), "a session is no login");
    assert!(address::open(&sealer(), &cookie).is_none(), "and no address");
}

#[test]
fn a_form_belongs_to_the_session_that_it_was_made_for() {
    let session = |id| {
        let pending = PendingLogin::new("address", &request(id));
        ApproverSession::open(
            &sealer(),
            &ApproverSession::cookie(&sealer(), &pending, &caller(&["finance"])).unwrap(),
        )
        .unwrap()
    };
    let own = session([3; 16]);
    let other = session([3; 16]);
    let ticket = own.form(&sealer()).unwrap();
    assert!(own.is_own_form(&sealer(), &ticket));
    assert!(!other.is_own_form(&sealer(), &ticket), "another login");
    assert!(!own.is_own_form(&sealer(), ""));
}
