//! Tokens of a company's own login: the location of its claims, tokens that are not access tokens, and keys newer than
//! the known ones.

use asp_proto::snapshot::ClaimNames;
use serde_json::{Value, json};

use super::*;
use crate::token::issuer::Issuers;

/// Returns a bench whose first issuer is modified by `change`.
fn bench(change: impl FnOnce(&mut asp_proto::snapshot::Issuer)) -> Bench {
    let mut bench = Bench::new();
    change(&mut bench.message.issuers[0]);
    bench
}

#[test]
fn claims_are_found_by_path_and_by_default() {
    let names = ClaimNames {
        org: "/tenant/id".into(),
        user: "preferred_username".into(),
        groups: "/realm_access/roles".into(),
        scopes: "scp".into(),
        client: "/resource/app~1id".into(),
        org_default: String::new(),
        groups_default: Vec::new(),
        scopes_default: vec!["basic".into()],
    };
    let bench = bench(|issuer| issuer.claims = Some(names));
    let claims = json!({
        "org": null, "tenant": {"id": "acme"}, "preferred_username": "alice@acme", "realm_access": {"roles": ["a", "b"]},
        "resource": {"app/id": "cli"},
    });
    let caller = bench.judge(json!({ "claims": claims })).unwrap();
    assert_eq!(
        (caller.org.as_str(), caller.user.as_str(), caller.client.as_str()),
        ("acme", "alice@acme", "cli")
    );
    assert_eq!(
        (&caller.groups, &caller.scopes),
        (&vec!["a".to_owned(), "b".into()], &vec!["basic".to_owned()])
    );
    for (member, bad) in [
        ("tenant", json!({"id": 7})),
        ("tenant", json!("acme")),
        ("tenant", json!({})),
        ("realm_access", json!({"roles": {"a": 1}})),
        ("preferred_username", Value::Null),
    ] {
        let mut changed = claims.clone();
        changed[member] = bad;
        assert_eq!(bench.judge(json!({ "claims": changed })), Err(Reason::TokenInvalid), "{changed}");
    }
}

#[test]
fn an_org_that_no_token_names_is_the_issuers_own_and_must_be_one_it_speaks_for() {
    let of = |orgs: &[&str]| {
        let orgs = orgs.iter().map(|org| (*org).to_owned()).collect();
        bench(|issuer| {
            issuer.claims = Some(ClaimNames { org_default: "acme".into(), ..ClaimNames::default() });
            issuer.orgs = orgs;
        })
    };
    let without = json!({"claims": {"org": null}});
    assert_eq!(of(&["acme"]).judge(without.clone()).unwrap().org, "acme");
    assert_eq!(of(&["globex"]).judge(without), Err(Reason::TokenInvalid));
    assert_eq!(of(&["*"]).judge(json!({"claims": {"org": "globex"}})).unwrap().org, "globex", "a claim wins");
}

#[test]
fn a_type_may_be_jwt_or_none_and_then_an_id_token_is_refused_by_what_it_says() {
    let bench = bench(|issuer| issuer.typ = vec!["JWT".into(), "none".into()]);
    for header in [json!({"typ": "JWT"}), json!({"typ": "jwt"}), json!({"typ": null})] {
        assert!(bench.judge(json!({ "header": header })).is_ok(), "{header}");
        assert!(bench.judge(json!({ "header": header, "claims": {"typ": "Bearer"} })).is_ok(), "{header}");
        for claims in [
            json!({"typ": "ID"}),
            json!({"typ": "Refresh"}),
            json!({"typ": "Logout"}),
            json!({"typ": 7}),
            json!({"nonce": "n"}),
            json!({"at_hash": "h"}),
            json!({"c_hash": "h"}),
            json!({"s_hash": "h"}),
            json!({"events": {}}),
            json!({"cnf": {"jkt": "x"}}),
        ] {
            let refused = bench.judge(json!({ "header": header, "claims": claims }));
            assert_eq!(refused, Err(Reason::TokenInvalid), "{header} {claims}");
        }
    }
    for header in [json!({"typ": "at+jwt"}), json!({"typ": "none"}), json!({"typ": 7}), json!({"typ": ""})] {
        let expected = if header["typ"] == "none" { None } else { Some(Reason::TokenInvalid) };
        assert_eq!(bench.judge(json!({ "header": header })).err(), expected, "{header}");
    }
}

#[test]
fn only_a_key_that_could_be_a_newer_one_is_asked_for() {
    let asked = |bench: &Bench, recipe: Value| {
        let token = bench.mint(recipe);
        let snapshot = Snapshot::from_message(bench.message.clone()).unwrap();
        let trust = snapshot.trust(snapshot.server("demo").unwrap());
        bench.tokens.evaluate(trust, &token, NOW).unwrap_err().unknown_key_of
    };
    let fetched = bench(|issuer| issuer.keys_refreshed = true);
    let newer = json!({"sign": "attacker", "header": {"kid": "newer"}});
    assert_eq!(asked(&fetched, newer.clone()).as_deref(), Some("dev"));
    assert_eq!(asked(&Bench::new(), newer), None, "keys that are written are all there are");
    for recipe in [
        json!({"sign": "attacker", "header": {"kid": "dev"}}),
        json!({"sign": "attacker", "header": {"kid": "k".repeat(129)}}),
        json!({"sign": "attacker", "header": {"kid": "a b"}}),
        json!({"sign": "attacker", "header": {"kid": null}}),
        json!({"sign": "attacker", "header": {"kid": "newer", "alg": "none"}}),
        json!({"sign": "attacker", "header": {"kid": "newer", "alg": "HS256"}}),
        json!({"sign": "attacker", "header": {"kid": "newer", "typ": "JWT"}}),
        json!({"sign": "attacker", "header": {"kid": "newer", "crit": ["b64"]}}),
        json!({"sign": "attacker", "header": {"kid": "newer"}, "claims": {"iss": "https://nobody.example"}}),
    ] {
        assert_eq!(asked(&fetched, recipe.clone()), None, "{recipe}");
    }
}

#[test]
fn what_an_issuer_says_of_an_opaque_token_obeys_the_rules_for_claims() {
    let bench = Bench::new();
    let issuers = Issuers::index(&bench.message.issuers).unwrap();
    let issuer = issuers.by_name("dev").unwrap();
    let audiences = ["https://mcp.example.com/demo/mcp".to_owned()];
    let said = |change: Value| {
        let mut said = json!({
            "active": true, "sub": "alice", "org": "acme", "scope": "a b", "client_id": "cli",
            "aud": "https://mcp.example.com/demo/mcp", "iat": NOW - 5, "exp": NOW + 60,
        });
        for (member, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(said.as_object_mut().unwrap().remove(member)),
                value => said[member] = value.clone(),
            }
        }
        said.as_object().unwrap().clone()
    };
    let read = |change: Value, accepted: &[&str]| {
        let accepted: Vec<String> = accepted.iter().map(|audience| (*audience).to_owned()).collect();
        introspected(issuer, &said(change), ([7; 32], &audiences, &accepted), NOW)
    };
    let caller = read(json!({}), &[]).unwrap();
    assert_eq!((caller.user.as_str(), caller.issuer.as_str(), caller.wcit), ("alice", "dev", hex(&[7; 32])));
    assert_eq!((caller.issued_at, caller.expires_at), (NOW - 5, NOW + 60));
    let undated = read(json!({"iat": null, "exp": null}), &[]).unwrap();
    assert_eq!(undated.issued_at, NOW - 86_400, "as old as it may be: no revocation misses it");
    assert_eq!(undated.expires_at, NOW + 86_400, "a call of it is not ended by its own clock");
    let unbegun = read(json!({"iat": null}), &[]).unwrap();
    assert_eq!((unbegun.issued_at, unbegun.expires_at), (NOW + 60 - 86_400 - 60, NOW + 60));
    assert!(read(json!({"aud": "urn:other"}), &["urn:other"]).is_ok());
    assert!(read(json!({"aud": null}), &["*"]).is_ok());
    for change in [
        json!({"aud": null}),
        json!({"aud": "urn:other"}),
        json!({"sub": null}),
        json!({"org": null}),
        json!({"iss": "https://other.example"}),
        json!({"iat": NOW + 3600, "exp": NOW + 7200}),
        json!({"nbf": NOW + 3600}),
        json!({"exp": "soon"}),
        json!({"iat": NOW - 90_000}),
        json!({"cnf": {"x5t#S256": "x"}}),
        json!({"typ": "ID"}),
        json!({"typ": "Refresh"}),
        json!({"nonce": "n"}),
        json!({"token_type": "DPoP"}),
    ] {
        assert!(read(change.clone(), &[]).is_err(), "{change}");
    }
}
