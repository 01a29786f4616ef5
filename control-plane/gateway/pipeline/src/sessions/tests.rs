use asp_store::bus::{Bus, BusEvent, MemoryBus};
use asp_store::sessions::MemoryDirectory;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};

use super::*;
use testkit::caller;

#[path = "../../../call/src/call/testkit.rs"]
mod testkit;

fn sessions() -> Sessions {
    Sessions::new(Arc::new(Sealer::new(&[7; 32], None).unwrap()), None)
}

/// Finds a session at a gateway that is alone, where nothing is awaited.
fn find(
    sessions: &Sessions,
    token: &str,
    server: &str,
    caller: &Caller,
) -> Result<Arc<LegacySession>, Reason> {
    sessions.find(token, server, caller).now_or_never().unwrap()
}

fn delete(sessions: &Sessions, token: &str, server: &str, caller: &Caller) -> Result<(), Reason> {
    sessions.delete(token, server, caller).now_or_never().unwrap()
}

fn profile() -> Profile {
    Profile {
        revision: Revision::V2025_06_18,
        abilities: ClientAbilities {
            elicitation: true,
            pages: true,
            roots: true,
            ..ClientAbilities::default()
        },
    }
}

#[test]
fn the_id_carries_the_edges_key_and_is_visible_ascii() {
    let minted = sessions().create(Some("0123456789abcdef"), "demo", &caller("alice"), profile()).unwrap();
    assert_eq!(minted.affinity, "0123456789abcdef");
    assert!(minted.token.starts_with("v1.0123456789abcdef."));
    assert!(minted.token.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
    for bad in [None, Some(""), Some("XYZ"), Some("0123456789ABCDEF"), Some("0123456789abcdef0")] {
        let minted = sessions().create(bad, "demo", &caller("alice"), profile()).unwrap();
        assert!(is_affinity_key(&minted.affinity), "{bad:?}");
        assert_ne!(Some(minted.affinity.as_str()), bad);
    }
}

#[test]
fn an_admin_ends_a_session_of_the_own_org_here_and_where_its_client_comes_next() {
    let sealer = Arc::new(Sealer::new(&[7; 32], None).unwrap());
    let [first, second] = [(); 2].map(|()| Sessions::new(sealer.clone(), None));
    let alice = caller("alice");
    let minted = first.create(None, "demo", &alice, profile()).unwrap();
    let id = find(&first, &minted.token, "demo", &alice).unwrap().key();
    let end =
        |sessions: &Sessions, org: &str| sessions.end_for_admin(&id, org).now_or_never().unwrap().is_some();
    assert!(!end(&first, "another org") && !end(&second, "another org"));
    assert!(
        find(&first, &minted.token, "demo", &alice).is_ok()
            && find(&second, &minted.token, "demo", &alice).is_ok()
    );
    let third = Sessions::new(sealer, None);
    assert!(!end(&third, &alice.org), "it is not there yet");
    assert!(end(&first, &alice.org) && end(&second, &alice.org));
    for sessions in [&first, &second, &third] {
        assert_eq!(find(sessions, &minted.token, "demo", &alice).err(), Some(Reason::SessionUnknown));
    }
    let subject = first.create(None, "demo", &alice, profile()).map(|_| first.list_sessions()).unwrap();
    assert_eq!(
        subject[0].subject().map(|subject| (&*subject.user, &*subject.server)),
        Some(("alice", "demo"))
    );
}

#[test]
fn another_replica_opens_the_session_with_what_was_negotiated() {
    let sealer = Arc::new(Sealer::new(&[7; 32], None).unwrap());
    let first = Sessions::new(sealer.clone(), None);
    let second = Sessions::new(sealer, None);
    let minted = first.create(None, "demo", &caller("alice"), profile()).unwrap();
    let session = find(&second, &minted.token, "demo", &caller("alice")).unwrap();
    assert_eq!(session.profile, profile());
    assert_eq!(session.key(), find(&first, &minted.token, "demo", &caller("alice")).unwrap().key());
}

#[test]
fn a_session_of_another_user_or_server_or_an_altered_one_is_unknown() {
    let sessions = sessions();
    let token = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let mut other_key = token.clone().into_bytes();
    other_key[3] = if other_key[3] == b'0' { b'1' } else { b'0' };
    let other_key = String::from_utf8(other_key).unwrap();
    let rows = [
        (token.as_str(), "demo", "bob"),
        (token.as_str(), "other", "alice"),
        (other_key.as_str(), "demo", "alice"),
        (&token[..token.len() - 1], "demo", "alice"),
        ("", "demo", "alice"),
        ("v1.", "demo", "alice"),
        ("v1.0123456789abcdef.", "demo", "alice"),
        ("my-own-id", "demo", "alice"),
    ];
    for (token, server, user) in rows {
        assert_eq!(
            find(&sessions, token, server, &caller(user)).err(),
            Some(Reason::SessionUnknown),
            "{token}"
        );
    }
}

#[test]
fn a_refreshed_token_of_the_same_principal_finds_its_session() {
    let sessions = sessions();
    let token = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let refreshed = Caller { wcit: "t2".into(), issued_at: 9, ..caller("alice") };
    assert!(find(&sessions, &token, "demo", &refreshed).is_ok());
}

#[test]
fn a_deleted_session_stays_deleted_and_only_its_owner_deletes_it() {
    let sessions = sessions();
    let token = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    assert_eq!(delete(&sessions, &token, "demo", &caller("bob")), Err(Reason::SessionUnknown));
    assert_eq!(delete(&sessions, &token, "demo", &caller("alice")), Ok(()));
    assert_eq!(find(&sessions, &token, "demo", &caller("alice")).err(), Some(Reason::SessionUnknown));
    assert_eq!(delete(&sessions, &token, "demo", &caller("alice")), Err(Reason::SessionUnknown));
    assert_eq!(sessions.len(), 0);
}

#[test]
fn the_same_names_from_another_issuer_are_another_principal() {
    let sessions = sessions();
    let token = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let twin = Caller { issuer: "twin".into(), ..caller("alice") };
    assert_eq!(find(&sessions, &token, "demo", &twin).err(), Some(Reason::SessionUnknown));
    assert_ne!(principal(&twin), principal(&caller("alice")));
}

#[test]
fn a_user_with_too_many_sessions_pushes_out_none_of_anybody_else() {
    let sessions = sessions();
    let alices = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let kept = find(&sessions, &alices, "demo", &caller("alice")).unwrap();
    for number in 0..=BOUNDS.of_user.entries as u64 {
        let greedy = Caller { client: format!("app-{number}"), ..caller("mallory") };
        sessions.create(None, "demo", &greedy, profile()).unwrap();
    }
    assert_eq!(sessions.len(), BOUNDS.of_user.entries + 1);
    let found = find(&sessions, &alices, "demo", &caller("alice")).unwrap();
    assert!(Arc::ptr_eq(&kept, &found), "what it keeps is still there, not rebuilt from the id");
}

#[test]
fn an_org_with_too_many_sessions_pushes_out_none_of_another_org() {
    let sessions = sessions();
    let alices = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let kept = find(&sessions, &alices, "demo", &caller("alice")).unwrap();
    let globex = |user: usize| Caller { org: "globex".into(), ..caller(&format!("user-{user}")) };
    for number in 0..BOUNDS.whole.entries {
        sessions.create(None, "demo", &globex(number % 20), profile()).unwrap();
    }
    assert_eq!(sessions.len(), BOUNDS.of_org.entries + 1);
    let found = find(&sessions, &alices, "demo", &caller("alice")).unwrap();
    assert!(Arc::ptr_eq(&kept, &found), "what it keeps is still there, not rebuilt from the id");
}

#[test]
fn an_org_that_ends_too_many_sessions_is_told_and_brings_no_deleted_one_back() {
    let sessions = sessions();
    let end = |caller: &Caller| {
        let token = sessions.create(None, "demo", caller, profile()).unwrap().token;
        (delete(&sessions, &token, "demo", caller), token)
    };
    let (ended, alices) = end(&caller("alice"));
    assert_eq!(ended, Ok(()));
    let globex = |user: usize| Caller { org: "globex".into(), ..caller(&format!("user-{user}")) };
    let (ended, first) = end(&globex(0));
    assert_eq!(ended, Ok(()));
    for number in 1..BOUNDS.of_org.entries {
        assert_eq!(end(&globex(number % 20)).0, Ok(()), "{number}");
    }
    let (refused, still) = end(&globex(3));
    assert_eq!(refused, Err(Reason::RateLimited));
    assert!(
        find(&sessions, &still, "demo", &globex(3)).is_ok(),
        "nothing is done to a session that cannot be ended"
    );
    for (token, caller) in [(alices, caller("alice")), (first, globex(0))] {
        assert_eq!(find(&sessions, &token, "demo", &caller).err(), Some(Reason::SessionUnknown));
    }
    assert_eq!(end(&caller("alice")).0, Ok(()), "other orgs end theirs");
}

/// Returns two gateways that share a directory and a bus.
fn two() -> (Sessions, Sessions) {
    let sealer = Arc::new(Sealer::new(&[7; 32], None).unwrap());
    let directory = Arc::new(MemoryDirectory::default());
    let bus = Arc::new(MemoryBus::default());
    let of = |number: u8| {
        let replicas = Replicas::new(sealer.clone(), directory.clone(), bus.clone(), OwnerId([number; 16]));
        Sessions::new(sealer.clone(), Some(Arc::new(replicas)))
    };
    (of(1), of(2))
}

#[tokio::test]
async fn a_session_deleted_at_one_gateway_is_unknown_at_another() {
    let (first, second) = two();
    let alice = caller("alice");
    let token = first.create(None, "demo", &alice, profile()).unwrap().token;
    assert_eq!(first.delete(&token, "demo", &alice).await, Ok(()));
    for _ in 0..2 {
        assert_eq!(second.find(&token, "demo", &alice).await.err(), Some(Reason::SessionUnknown));
    }
    assert_eq!(second.delete(&token, "demo", &alice).await, Err(Reason::SessionUnknown));
}

#[tokio::test]
async fn whoever_has_a_session_is_told_of_its_end() {
    let alice = caller("alice");
    // Ended at a gateway that only uses the session, and at its creator.
    for ends in [2, 1] {
        let (first, second) = two();
        let token = first.create(None, "demo", &alice, profile()).unwrap().token;
        let session = second.find(&token, "demo", &alice).await.unwrap();
        let (ends, hears) = if ends == 2 { (&second, &first) } else { (&first, &second) };
        let mut told = hears.replicas().unwrap().listen();
        assert_eq!(ends.delete(&token, "demo", &alice).await, Ok(()));
        let message = told.next().now_or_never().flatten().unwrap();
        let BusEvent::Message(ReplicaMessage::Ended { session: ended }) = message else {
            panic!("{message:?}")
        };
        assert_eq!(ended, session.sid());
        assert!(hears.apply_remote_end(&session.sid()).is_some());
        assert!(told.next().now_or_never().is_none(), "once");
    }
}

#[tokio::test]
async fn what_one_gateway_asks_a_client_is_known_at_another_and_nothing_else_is() {
    let (first, second) = two();
    let alice = caller("alice");
    let token = first.create(None, "demo", &alice, profile()).unwrap().token;
    let here = first.find(&token, "demo", &alice).await.unwrap();
    let there = second.find(&token, "demo", &alice).await.unwrap();
    let id = first.request_id(&here, "0192.name.first");
    assert_eq!(id, first.request_id(&here, "0192.name.first"), "put again, it is the same request");
    assert!(second.is_own_request(&there, &id));
    let other = second.create(None, "demo", &alice, profile()).unwrap().token;
    let other = second.find(&other, "demo", &alice).await.unwrap();
    assert!(!second.is_own_request(&other, &id), "of another session");
    let altered = id.replace("0192", "0193");
    for made_up in ["", ".", "0192.name.first", "ping.0123456789abcdef", &altered, &id[..id.len() - 1]] {
        assert!(!second.is_own_request(&there, made_up), "{made_up}");
    }
}

#[tokio::test]
async fn what_a_session_set_goes_with_it() {
    let (first, second) = two();
    let alice = caller("alice");
    let token = first.create(None, "demo", &alice, profile()).unwrap().token;
    let session = first.find(&token, "demo", &alice).await.unwrap();
    first.set_log_level(&session, LogLevel::Debug).await;
    assert_eq!(second.find(&token, "demo", &alice).await.unwrap().log_level(), LogLevel::Debug);
}

#[tokio::test]
async fn an_id_of_a_gateway_alone_is_known_where_there_are_several_and_the_other_way_round() {
    let (first, _) = two();
    let alice = caller("alice");
    let token = sessions().create(None, "demo", &alice, profile()).unwrap().token;
    assert!(first.find(&token, "demo", &alice).await.is_ok());
    let token = first.create(None, "demo", &alice, profile()).unwrap().token;
    assert!(find(&sessions(), &token, "demo", &alice).is_ok());
}

#[tokio::test]
async fn what_no_gateway_has_sealed_for_this_one_is_not_heard() {
    let bus = Arc::new(MemoryBus::default());
    let of = |key: u8, number: u8, bus: &Arc<MemoryBus>| {
        let sealer = Arc::new(Sealer::new(&[key; 32], None).unwrap());
        Replicas::new(sealer, Arc::new(MemoryDirectory::default()), bus.clone(), OwnerId([number; 16]))
    };
    let hears = of(7, 1, &bus);
    let mut told = hears.listen();
    let end = |number: u8| ReplicaMessage::Ended { session: [number; 16] };
    let plain = serde_json::to_vec(&end(1)).unwrap();
    bus.tell(OwnerId([1; 16]), plain.into()).await.unwrap();
    bus.tell(OwnerId([1; 16]), Bytes::new()).await.unwrap();
    of(8, 2, &bus).tell(vec![OwnerId([1; 16])], &end(2)).await.unwrap();
    of(7, 2, &bus).tell(vec![OwnerId([1; 16])], &end(3)).await.unwrap();
    let heard = told.next().now_or_never().flatten().unwrap();
    let BusEvent::Message(ReplicaMessage::Ended { session }) = heard else { panic!("{heard:?}") };
    assert_eq!(session, [3; 16]);
}
