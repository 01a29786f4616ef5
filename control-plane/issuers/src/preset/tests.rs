//! Each preset against a recorded discovery document and recorded tokens of its provider (`tests/presets`), whose names, ids
//! and keys are examples. Times are those of the test, and a key of the test signs.

use std::sync::LazyLock;

use asp_edge::testkit::SigningKey;
use asp_store::control::Side;
use serde_json::{Map, Value, json};

use super::*;
use crate::document::KeySet;
use crate::faults;
use crate::fetch::Discovery;
use crate::trial::{TokenParts, Trial};

/// Unix seconds.
const NOW: u64 = 1_800_000_000;
const PUBLIC_URL: &str = "https://mcp.acme.example";
static KEY: LazyLock<SigningKey> = LazyLock::new(SigningKey::rs256);

/// A recording with the document proposed for it.
struct Recording {
    preset: Preset,
    recorded: Value,
    proposal: Proposal,
    trial: Trial,
}

impl Recording {
    fn of(name: &str, text: &str) -> Recording {
        let recorded: Value = serde_json::from_str(text).unwrap();
        let preset = Preset::parse(name).unwrap();
        let given = |member: &str| recorded["values"][member].as_str().unwrap().to_owned();
        let values = PresetValues {
            place: given("place"),
            client: given("client"),
            org: given("org"),
            audience: None,
        };
        let proposal = preset.propose(name, &values).unwrap();
        let discovery: Discovery = serde_json::from_value(recorded["discovery"].clone()).unwrap();
        assert_eq!(recorded["discovery"]["issuer"], proposal.document.iss, "{name}");
        // Entra publishes keys without `alg`.
        let mut jwk = KEY.jwk_named("k1");
        jwk.as_object_mut().unwrap().remove("alg");
        let metadata = discovery.with_keys(KeySet { keys: vec![jwk] });
        let trial = Trial::of(&proposal.document, metadata).unwrap();
        assert_eq!((trial.keys(), trial.faults.len()), (1, 0), "{name}");
        Recording { preset, recorded, proposal, trial }
    }

    /// Returns the recorded token with other members; `null` removes one.
    fn token(&self, header: &Value, claims: &Value) -> String {
        let mut all = self.recorded["claims"].as_object().unwrap().clone();
        for (name, seconds) in [("iat", NOW - 60), ("nbf", NOW - 60), ("exp", NOW + 3_600)] {
            all.insert(name.into(), json!(seconds));
        }
        let mut head = self.recorded["header"].as_object().unwrap().clone();
        head.insert("kid".into(), json!("k1"));
        KEY.token(&changed(head, header), &changed(all, claims))
    }
}

fn changed(mut members: Map<String, Value>, change: &Value) -> Value {
    for (name, value) in change.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(members.remove(name)),
            value => drop(members.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(members)
}

fn recordings() -> [Recording; 6] {
    [
        Recording::of("entra", include_str!("../../tests/presets/entra.json")),
        Recording::of("okta", include_str!("../../tests/presets/okta.json")),
        Recording::of("auth0", include_str!("../../tests/presets/auth0.json")),
        Recording::of("google", include_str!("../../tests/presets/google.json")),
        Recording::of("keycloak", include_str!("../../tests/presets/keycloak.json")),
        Recording::of("authentik", include_str!("../../tests/presets/authentik.json")),
    ]
}

#[test]
fn a_recorded_token_of_each_provider_is_the_caller_that_its_page_promises() {
    for recording in recordings() {
        let caller =
            recording.trial.evaluate(PUBLIC_URL, &recording.token(&json!({}), &json!({})), NOW).unwrap();
        let caller = json!({
            "org": caller.org, "user": caller.user, "groups": caller.groups, "scopes": caller.scopes,
            "client": caller.client,
        });
        assert_eq!(caller, recording.recorded["caller"], "{:?}", recording.preset);
    }
}

#[test]
fn a_refused_token_is_explained_with_the_remedy_at_its_provider() {
    for recording in recordings() {
        let preset = recording.preset;
        for case in recording.recorded["refused"].as_array().unwrap() {
            let token = recording.token(&case["header"], &case["claims"]);
            let why = recording.trial.evaluate(PUBLIC_URL, &token, NOW).unwrap_err();
            assert!(why.contains(case["why"].as_str().unwrap()), "{preset:?}: {why}");
            let remedy = preset.remedy(TokenParts::read(&token).as_ref()).unwrap_or_default();
            assert!(remedy.contains(case["remedy"].as_str().unwrap()), "{preset:?} {case}: {remedy}");
        }
        let opaque = &recording.recorded["opaque"];
        if opaque.is_object() {
            let why = recording.trial.evaluate(PUBLIC_URL, "an-opaque-token", NOW).unwrap_err();
            assert!(why.contains(opaque["why"].as_str().unwrap()), "{why}");
            let remedy = preset.remedy(None).unwrap_or_default();
            assert!(remedy.contains(opaque["remedy"].as_str().unwrap()), "{remedy}");
        }
    }
}

#[test]
fn a_proposal_can_be_stored_and_identifies_users_by_stable_claims() {
    for Recording { preset, proposal, trial, .. } in recordings() {
        let document = &proposal.document;
        assert_eq!(faults::of_document(Side::Clients, document), [""; 0], "{preset:?}");
        assert!(["", "oid", "uid"].contains(&document.claims.user.as_str()), "{preset:?}");
        assert_eq!(document.orgs.len(), 1, "{preset:?}");
        assert!(!proposal.notes.is_empty() && !preset.place().is_empty());
        assert!(trial.device_endpoints().is_some(), "{preset:?}");
        // Stored as JSON and read again, it is the same.
        let text = serde_json::to_string(document).unwrap();
        let read: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
    let login = |name: &str| {
        let all = recordings();
        let recording = all.into_iter().find(|recording| recording.preset == Preset::parse(name).unwrap());
        recording.unwrap().proposal.document.login.map(|login| (login.resource, login.scopes_on_refresh))
    };
    assert_eq!(
        login("entra"),
        Some((false, true)),
        "Entra refuses `resource`, and a renewal without a scope"
    );
    assert_eq!(login("keycloak"), Some((true, false)));
    assert_eq!(login("google"), None, "nobody logs in at Google alone");
}

#[test]
fn a_token_of_another_kind_key_or_time_is_refused_with_its_cause() {
    let all = recordings();
    let keycloak = all.iter().find(|recording| recording.preset == Preset::Keycloak).unwrap();
    let refused = |header: Value, claims: Value, now: u64| {
        keycloak.trial.evaluate(PUBLIC_URL, &keycloak.token(&header, &claims), now).unwrap_err()
    };
    assert_eq!(
        refused(json!({ "typ": "logout+jwt" }), json!({}), NOW),
        "the header typ is logout+jwt, accepted are jwt"
    );
    assert_eq!(refused(json!({ "kid": "k2" }), json!({}), NOW), "the issuer publishes no usable key \"k2\"");
    assert_eq!(refused(json!({}), json!({}), NOW + 7_200), "token_expired");
    let mut forged = keycloak.token(&json!({}), &json!({}));
    forged.truncate(forged.rfind('.').unwrap() + 1);
    forged.push_str("AAAA");
    let why = keycloak.trial.evaluate(PUBLIC_URL, &forged, NOW).unwrap_err();
    assert_eq!(why, "the signature does not fit the issuer's key");
}

#[test]
fn a_place_is_taken_in_the_form_in_which_people_have_it() {
    let iss = |preset: Preset, place: &str| preset.iss(place);
    let okta = Ok("https://acme.okta.com/oauth2/default".to_owned());
    for place in ["acme.okta.com", "https://acme.okta.com/", "https://acme.okta.com/oauth2/default/"] {
        assert_eq!(iss(Preset::Okta, place), okta, "{place}");
    }
    assert_eq!(iss(Preset::Auth0, "https://acme.eu.auth0.com"), Ok("https://acme.eu.auth0.com/".to_owned()));
    for (preset, place) in [
        (Preset::Entra, "common"),
        (Preset::Entra, "acme.onmicrosoft.com"),
        (Preset::Keycloak, "https://login.acme.example"),
        (Preset::Authentik, "https://auth.acme.example"),
    ] {
        assert!(iss(preset, place).is_err(), "{place}");
    }
    for name in Preset::NAMES {
        assert!(Preset::parse(name).is_some(), "{name}");
    }
    assert_eq!(Preset::parse("ldap"), None);
}
