use super::*;

fn sessions() -> Sessions {
    Sessions::new(Arc::new(Sealer::new(&[7; 32], None).unwrap()))
}

fn caller(user: &str) -> Caller {
    Caller {
        org: "acme".into(),
        user: user.into(),
        groups: Vec::new(),
        scopes: Vec::new(),
        client: "cli".into(),
        wcit: "t".into(),
        digest: [0; 32],
        issuer: "dev".into(),
        issued_at: 0,
        expires_at: 0,
    }
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
fn another_replica_opens_the_session_with_what_was_negotiated() {
    let sealer = Arc::new(Sealer::new(&[7; 32], None).unwrap());
    let first = Sessions::new(sealer.clone());
    let second = Sessions::new(sealer);
    let minted = first.create(None, "demo", &caller("alice"), profile()).unwrap();
    let session = second.find(&minted.token, "demo", &caller("alice")).unwrap();
    assert_eq!(session.profile, profile());
    assert_eq!(session.key(), first.find(&minted.token, "demo", &caller("alice")).unwrap().key());
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
            sessions.find(token, server, &caller(user)).err(),
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
    assert!(sessions.find(&token, "demo", &refreshed).is_ok());
}

#[test]
fn a_deleted_session_stays_deleted_and_only_its_owner_deletes_it() {
    let sessions = sessions();
    let token = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    assert_eq!(sessions.delete(&token, "demo", &caller("bob")), Err(Reason::SessionUnknown));
    assert_eq!(sessions.delete(&token, "demo", &caller("alice")), Ok(()));
    assert_eq!(sessions.find(&token, "demo", &caller("alice")).err(), Some(Reason::SessionUnknown));
    assert_eq!(sessions.delete(&token, "demo", &caller("alice")), Err(Reason::SessionUnknown));
    assert_eq!(sessions.len(), 0);
}

#[test]
fn the_same_names_from_another_issuer_are_another_principal() {
    let sessions = sessions();
    let token = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let twin = Caller { issuer: "twin".into(), ..caller("alice") };
    assert_eq!(sessions.find(&token, "demo", &twin).err(), Some(Reason::SessionUnknown));
    assert_ne!(principal(&twin), principal(&caller("alice")));
}

#[test]
fn a_user_with_too_many_sessions_pushes_out_none_of_anybody_else() {
    let sessions = sessions();
    let alices = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let kept = sessions.find(&alices, "demo", &caller("alice")).unwrap();
    for number in 0..=BOUNDS.of_user.entries as u64 {
        let greedy = Caller { client: format!("app-{number}"), ..caller("mallory") };
        sessions.create(None, "demo", &greedy, profile()).unwrap();
    }
    assert_eq!(sessions.len(), BOUNDS.of_user.entries + 1);
    let found = sessions.find(&alices, "demo", &caller("alice")).unwrap();
    assert!(Arc::ptr_eq(&kept, &found), "what it keeps is still there, not rebuilt from the id");
}

#[test]
fn an_org_with_too_many_sessions_pushes_out_none_of_another_org() {
    let sessions = sessions();
    let alices = sessions.create(None, "demo", &caller("alice"), profile()).unwrap().token;
    let kept = sessions.find(&alices, "demo", &caller("alice")).unwrap();
    let globex = |user: usize| Caller { org: "globex".into(), ..caller(&format!("user-{user}")) };
    for number in 0..BOUNDS.whole.entries {
        sessions.create(None, "demo", &globex(number % 20), profile()).unwrap();
    }
    assert_eq!(sessions.len(), BOUNDS.of_org.entries + 1);
    let found = sessions.find(&alices, "demo", &caller("alice")).unwrap();
    assert!(Arc::ptr_eq(&kept, &found), "what it keeps is still there, not rebuilt from the id");
}

#[test]
fn an_org_that_ends_too_many_sessions_is_told_and_brings_no_deleted_one_back() {
    let sessions = sessions();
    let end = |caller: &Caller| {
        let token = sessions.create(None, "demo", caller, profile()).unwrap().token;
        (sessions.delete(&token, "demo", caller), token)
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
        sessions.find(&still, "demo", &globex(3)).is_ok(),
        "nothing is done to a session that cannot be ended"
    );
    for (token, caller) in [(alices, caller("alice")), (first, globex(0))] {
        assert_eq!(sessions.find(&token, "demo", &caller).err(), Some(Reason::SessionUnknown));
    }
    assert_eq!(end(&caller("alice")).0, Ok(()), "other orgs end theirs");
}
