//! The token rules, one table per concern. Checklist: RFC 8725 section 3, RFC 9068, RFC 6750.

use asp_proto::snapshot::{EdgeSnapshot, RevokedBefore};
use serde_json::{Value, json};

use super::*;
use crate::caller::mark;
use crate::snapshot::Snapshot;
use crate::testkit::{Keys, Recipe, Setting, load_snapshot, mint};

mod cache;
mod company;

const NOW: u64 = 2_000_000_000;
const PUBLIC_URL: &str = "https://mcp.example.com";

struct Bench {
    keys: &'static Keys,
    tokens: Tokens,
    message: EdgeSnapshot,
}

impl Bench {
    fn new() -> Bench {
        Bench::of(Hashing::Always)
    }

    fn of(hashing: Hashing) -> Bench {
        let keys = Keys::shared();
        let message = load_snapshot("full", &Setting { keys, now: NOW, public_url: PUBLIC_URL });
        Bench { keys, tokens: Tokens::new(hashing), message }
    }

    fn mint(&self, recipe: Value) -> String {
        let recipe: Recipe = serde_json::from_value(recipe).unwrap();
        mint(&recipe, self.keys, NOW, PUBLIC_URL)
    }

    fn judge_at(&self, token: &str, server: &str, now: u64) -> Result<Arc<Caller>, Reason> {
        let snapshot = Snapshot::from_message(self.message.clone()).unwrap();
        let judged = self.tokens.evaluate(snapshot.trust(snapshot.server(server).unwrap()), token, now);
        judged.map_err(|refused| refused.reason)
    }

    fn judge(&self, recipe: Value) -> Result<Arc<Caller>, Reason> {
        let token = self.mint(recipe);
        let first = self.judge_at(&token, "demo", NOW);
        assert_eq!(first, self.judge_at(&token, "demo", NOW), "the cache changed the verdict");
        first
    }

    fn all_invalid(&self, recipes: Vec<Value>) {
        for recipe in recipes {
            assert_eq!(self.judge(recipe.clone()), Err(Reason::TokenInvalid), "{recipe:.300}");
        }
    }
}

#[test]
fn the_scheme_is_read_without_regard_to_case() {
    for value in ["Bearer t", "bearer t", "BEARER   t"] {
        assert_eq!(credential(Some(value.as_bytes())), RequestCredential::Bearer("t"));
    }
    assert_eq!(credential(None), RequestCredential::Nothing);
    assert_eq!(credential(Some(b"Bearer")), RequestCredential::Bearer(""));
    for value in [b"".as_slice(), b"Basic t", b"Bearert", b"Bearer \xff"] {
        assert_eq!(credential(Some(value)), RequestCredential::Other);
    }
}

#[test]
fn a_good_token_gives_its_caller() {
    let bench = Bench::new();
    let token = bench.mint(json!({"claims": {"scope": "a b", "azp": "other"}}));
    let caller = bench.judge_at(&token, "demo", NOW).unwrap();
    let expected = Caller {
        org: "acme".into(),
        user: "alice".into(),
        groups: vec!["staff".into()],
        scopes: vec!["a".into(), "b".into()],
        client: "cli".into(),
        wcit: "jti-1".into(),
        digest: Sha256::digest(&token).into(),
        issuer: "dev".into(),
        issued_at: NOW - 60,
        expires_at: NOW + 600,
    };
    assert_eq!(*caller, expected);
    let at_the_edge = Bench::of(Hashing::WhenAsked).judge_at(&token, "demo", NOW).unwrap();
    assert_eq!(*at_the_edge, Caller { digest: [0; 32], ..expected });
}

#[test]
fn optional_claims_may_be_absent() {
    let bench = Bench::of(Hashing::WhenAsked);
    let claims = json!({"jti": null, "groups": null, "client_id": null, "azp": "app", "scope": ["x"]});
    let token = bench.mint(json!({"claims": claims}));
    let caller = bench.judge_at(&token, "demo", NOW).unwrap();
    assert_eq!(
        (caller.client.as_str(), &caller.groups, &caller.scopes),
        ("app", &vec![], &vec!["x".to_owned()])
    );
    assert_eq!(caller.wcit, hex(&Sha256::digest(&token)));
}

#[test]
fn every_algorithm_of_the_list_is_checked() {
    let bench = Bench::new();
    for signer in ["dev", "es384", "rs256", "rs384", "rs512", "eddsa"] {
        assert!(bench.judge(json!({"sign": signer})).is_ok(), "{signer}");
        let flipped = json!({"sign": signer, "spoil": "flip_signature"});
        assert_eq!(bench.judge(flipped), Err(Reason::TokenInvalid), "{signer}");
        let zero = json!({"sign": signer, "spoil": "zero_signature"});
        assert_eq!(bench.judge(zero), Err(Reason::TokenInvalid), "{signer}");
    }
}

#[test]
fn the_algorithm_comes_from_the_key_and_not_from_the_token() {
    let bench = Bench::new();
    bench.all_invalid(vec![
        json!({"sign": "none"}),
        json!({"sign": "none", "header": {"kid": "dev"}}),
        json!({"header": {"alg": "none"}}),
        json!({"header": {"alg": "nOnE"}}),
        json!({"header": {"alg": ""}}),
        json!({"header": {"alg": null}}),
        json!({"header": {"alg": 256}}),
        json!({"header": {"alg": "HS256"}}),
        json!({"header": {"alg": "es256"}}),
        json!({"header": {"alg": "RS256"}}),
        json!({"sign": "rs256", "header": {"alg": "RS384"}}),
        json!({"sign": "rs256", "header": {"alg": "HS256"}}),
        json!({"sign": "rs256", "header": {"alg": "PS256"}}),
    ]);
}

#[test]
fn the_key_is_looked_up_by_a_harmless_kid_of_the_issuer() {
    let bench = Bench::new();
    let long = "k".repeat(129);
    bench.all_invalid(vec![
        json!({"sign": "attacker", "header": {"kid": "dev"}}),
        json!({"sign": "attacker"}),
        json!({"sign": "other", "header": {"kid": "other"}}),
        json!({"header": {"kid": null}}),
        json!({"header": {"kid": 1}}),
        json!({"header": {"kid": ""}}),
        json!({"header": {"kid": "DEV"}}),
        json!({"header": {"kid": "dev "}}),
        json!({"header": {"kid": "dev\u{0}"}}),
        json!({"header": {"kid": "../../dev"}}),
        json!({"header": {"kid": "' OR 1=1 --"}}),
        json!({"header": {"kid": "https://evil.example/jwks"}}),
        json!({"header": {"kid": long}}),
    ]);
}

#[test]
fn a_token_without_kid_fits_an_issuer_with_one_key_only() {
    let bench = Bench::new();
    let claims = json!({"iss": "https://other.example"});
    assert!(bench.judge(json!({"sign": "other", "header": {"kid": null}, "claims": claims})).is_ok());
    assert!(bench.judge(json!({"header": {"kid": null}})).is_err());
}

#[test]
fn no_issuer_signs_for_another() {
    let bench = Bench::new();
    bench.all_invalid(vec![
        json!({"claims": {"iss": "https://other.example"}}),
        json!({"sign": "other"}),
        json!({"claims": {"iss": "asp-dev "}}),
        json!({"claims": {"iss": "ASP-DEV"}}),
        json!({"claims": {"iss": "asp-dev/"}}),
        json!({"claims": {"iss": null}}),
        json!({"claims": {"iss": ["asp-dev"]}}),
        json!({"claims": {"iss": ""}}),
        json!({"sign": "other", "claims": {"iss": "http://other.example"}}),
    ]);
}

#[test]
fn headers_that_point_elsewhere_are_ignored_and_crit_is_refused() {
    let bench = Bench::new();
    let attacker = bench.keys.jwk("attacker");
    let pointers = json!({"jku": "https://evil.example/jwks", "x5u": "https://evil.example", "x5c": ["AA"], "jwk": attacker});
    assert!(bench.judge(json!({"header": pointers})).is_ok());
    bench.all_invalid(vec![
        json!({"sign": "attacker", "header": {"kid": "dev", "jwk": attacker}}),
        json!({"header": {"crit": ["exp"]}}),
        json!({"header": {"crit": []}}),
        json!({"header": {"crit": ["b64"], "b64": false}}),
    ]);
}

#[test]
fn the_type_must_be_an_accepted_one() {
    let bench = Bench::new();
    for typ in ["at+jwt", "AT+JWT", "application/at+jwt"] {
        assert!(bench.judge(json!({"header": {"typ": typ}})).is_ok(), "{typ}");
    }
    bench.all_invalid(vec![
        json!({"header": {"typ": null}}),
        json!({"header": {"typ": "JWT"}}),
        json!({"header": {"typ": "id_token"}}),
        json!({"header": {"typ": ""}}),
        json!({"header": {"typ": 1}}),
    ]);
    let other =
        json!({"sign": "other", "header": {"typ": "JWT"}, "claims": {"iss": "https://other.example"}});
    assert!(bench.judge(other).is_ok());
}

#[test]
fn only_the_compact_form_is_a_token() {
    let bench = Bench::new();
    let kinds = [
        "flip_claims",
        "pad",
        "trailing_bits",
        "two_segments",
        "four_segments",
        "json",
        "duplicate_claim",
        "duplicate_header",
    ];
    bench.all_invalid(kinds.iter().map(|kind| json!({"spoil": kind})).collect());
    assert!(bench.judge(json!({"filler": 5000})).is_ok());
    bench.all_invalid(vec![json!({"filler": 7000}), json!({"filler": 1_000_000})]);
    for token in ["", ".", "..", "...", "a.b.c", "\u{e4}.b.c"] {
        assert_eq!(bench.judge_at(token, "demo", NOW), Err(Reason::TokenInvalid), "{token}");
    }
}

#[test]
fn the_audience_must_be_this_server() {
    let bench = Bench::new();
    for audience in [
        json!(PUBLIC_URL),
        json!(format!("{PUBLIC_URL}/demo")),
        json!(format!("{PUBLIC_URL}/demo/mcp")),
        json!("HTTPS://MCP.Example.COM/demo"),
        json!(["https://elsewhere.example", PUBLIC_URL]),
    ] {
        assert!(bench.judge(json!({"claims": {"aud": audience}})).is_ok(), "{audience}");
    }
    bench.all_invalid(vec![
        json!({"claims": {"aud": null}}),
        json!({"claims": {"aud": ""}}),
        json!({"claims": {"aud": []}}),
        json!({"claims": {"aud": 1}}),
        json!({"claims": {"aud": ["https://elsewhere.example"]}}),
        json!({"claims": {"aud": [PUBLIC_URL, 1]}}),
        json!({"claims": {"aud": {"a": PUBLIC_URL}}}),
        json!({"claims": {"aud": format!("{PUBLIC_URL}/")}}),
        json!({"claims": {"aud": format!("{PUBLIC_URL}.evil.example")}}),
        json!({"claims": {"aud": "mcp.example.com"}}),
        json!({"claims": {"aud": "http://mcp.example.com"}}),
        json!({"claims": {"aud": format!("{PUBLIC_URL}/DEMO")}}),
        json!({"claims": {"aud": format!("{PUBLIC_URL}/demo/")}}),
        json!({"claims": {"aud": format!("{PUBLIC_URL}/plain/mcp")}}),
        json!({"claims": {"aud": format!("{PUBLIC_URL} {PUBLIC_URL}/demo")}}),
    ]);
}

#[test]
fn a_server_that_lists_audiences_accepts_only_these_and_the_issuers_own() {
    let bench = Bench::new();
    let judge = |audience: &str| {
        let token = bench.mint(json!({"claims": {"aud": audience}}));
        bench.judge_at(&token, "strict", NOW).map(drop)
    };
    assert_eq!(judge("urn:strict"), Ok(()));
    assert_eq!(judge(PUBLIC_URL), Err(Reason::TokenInvalid));
    let other =
        json!({"sign": "other", "claims": {"iss": "https://other.example", "aud": "urn:issuer-wide"}});
    assert!(bench.judge(other).is_ok());
}

#[test]
fn claims_have_types_and_bounds() {
    let bench = Bench::new();
    let long = "x".repeat(513);
    let mut recipes = Vec::new();
    for (claim, values) in [
        ("sub", vec![json!(null), json!(""), json!(1), json!(["alice"]), json!("a\nb"), json!(long)]),
        ("org", vec![json!(null), json!(""), json!(1), json!({}), json!("a\u{0}b")]),
        ("exp", vec![json!(null), json!("9999999999"), json!(-1), json!([NOW]), json!(true), json!(9.3e18)]),
        ("iat", vec![json!(null), json!("1"), json!(-5), json!({}), json!("now+11"), json!("now+601")]),
        ("nbf", vec![json!("x"), json!(-1), json!([]), json!("now+11")]),
        ("jti", vec![json!(""), json!(1), json!("a\u{7f}")]),
        ("groups", vec![json!(1), json!([1]), json!([""]), json!({})]),
        ("scope", vec![json!(1), json!([1]), json!("a\tb")]),
        ("client_id", vec![json!(1), json!("")]),
    ] {
        recipes.extend(values.into_iter().map(|value| json!({"claims": {claim: value}})));
    }
    recipes.push(json!({"claims": {"exp": "now+86401", "iat": "now"}}));
    bench.all_invalid(recipes);
}

#[test]
fn a_list_of_more_entries_than_policy_is_evaluated_for_is_refused_by_its_claim() {
    let bench = Bench::new();
    let names = |count: usize| (0..count).map(|number| format!("n{number}")).collect::<Vec<_>>();
    for (claim, value) in [
        ("groups", json!(names(MAX_LISTED + 1))),
        ("scope", json!(names(MAX_LISTED + 1))),
        ("scope", json!(names(MAX_LISTED + 1).join(" "))),
    ] {
        let token = bench.mint(json!({"claims": {claim: value}}));
        let snapshot = Snapshot::from_message(bench.message.clone()).unwrap();
        let judged = bench.tokens.evaluate(snapshot.trust(snapshot.server("demo").unwrap()), &token, NOW);
        let cause = judged.unwrap_err().cause.unwrap().to_string();
        assert!(cause.starts_with(&format!("{claim} has more than {MAX_LISTED} entries")), "{cause}");
    }
    let claims = json!({"groups": names(MAX_LISTED), "scope": names(MAX_LISTED).join(" ")});
    let caller = bench.judge(json!({"claims": claims})).unwrap();
    assert_eq!((caller.groups.len(), caller.scopes.len()), (MAX_LISTED, MAX_LISTED));
}

#[test]
fn times_have_a_leeway_of_ten_seconds() {
    let bench = Bench::new();
    assert!(bench.judge(json!({"claims": {"iat": "now+10", "nbf": "now+10"}})).is_ok());
    assert!(bench.judge(json!({"claims": {"exp": "now-9"}})).is_ok());
    assert_eq!(bench.judge(json!({"claims": {"exp": "now-10"}})), Err(Reason::TokenExpired));
    assert!(bench.judge(json!({"claims": {"exp": NOW as f64 + 5.5, "iat": NOW as f64 - 5.5}})).is_ok());
    assert!(bench.judge(json!({"claims": {"exp": "now+86340", "iat": "now-60"}})).is_ok());
}

#[test]
fn a_cached_token_still_expires() {
    let bench = Bench::new();
    let token = bench.mint(json!({}));
    assert!(bench.judge_at(&token, "demo", NOW).is_ok());
    assert_eq!(bench.judge_at(&token, "demo", NOW + 700), Err(Reason::TokenExpired));
    assert_eq!(bench.judge_at(&token, "demo", NOW - 100), Err(Reason::TokenInvalid));
}

#[test]
fn a_cached_token_is_still_judged_for_each_server() {
    let bench = Bench::new();
    let token = bench.mint(json!({"claims": {"aud": format!("{PUBLIC_URL}/demo/mcp")}}));
    assert!(bench.judge_at(&token, "demo", NOW).is_ok());
    assert_eq!(bench.judge_at(&token, "plain", NOW), Err(Reason::TokenInvalid));
    let token = bench.mint(json!({"sign": "other", "claims": {"iss": "https://other.example"}}));
    assert!(bench.judge_at(&token, "demo", NOW).is_ok());
    assert_eq!(
        bench.judge_at(&token, "plain", NOW),
        Err(Reason::TokenInvalid),
        "plain takes dev's tokens only"
    );
}

#[test]
fn revocation_reaches_cached_tokens() {
    for hashing in [Hashing::WhenAsked, Hashing::Always] {
        revocation_reaches_tokens_hashed(hashing);
    }
}

fn revocation_reaches_tokens_hashed(hashing: Hashing) {
    let mut bench = Bench::of(hashing);
    let token = bench.mint(json!({"claims": {"jti": "j9"}}));
    let hash = hex(&Sha256::digest(&token));
    let untouched = bench.message.clone();
    for parts in [
        vec!["token", "asp-dev", "j9"],
        vec!["org_token", "asp-dev", "acme", "j9"],
        vec!["token_hash", &hash],
        vec!["org_token_hash", "acme", &hash],
    ] {
        assert!(bench.judge_at(&token, "demo", NOW).is_ok());
        let digest: [u8; 32] = Sha256::digest(parts.join("\0")).into();
        bench.message.revoked = digest[..16].to_vec();
        assert_eq!(bench.judge_at(&token, "demo", NOW), Err(Reason::TokenRevoked), "{parts:?}");
        bench.message = untouched.clone();
    }
    for parts in [
        vec!["token", "https://other.example", "j9"],
        vec!["org_token", "asp-dev", "globex", "j9"],
        vec!["org_token_hash", "globex", &hash],
    ] {
        let digest: [u8; 32] = Sha256::digest(parts.join("\0")).into();
        bench.message.revoked = digest[..16].to_vec();
        assert!(bench.judge_at(&token, "demo", NOW).is_ok(), "{parts:?}");
        bench.message = untouched.clone();
    }
    for (user, not_after_iat, dead) in
        [("alice", NOW - 60, true), ("alice", NOW - 61, false), ("", NOW - 60, true), ("bob", NOW, false)]
    {
        let entry =
            RevokedBefore { org: "acme".into(), user: user.into(), not_after_iat, ..Default::default() };
        bench.message.revoked_before = vec![entry];
        let judged = bench.judge_at(&token, "demo", NOW).map(drop);
        assert_eq!(judged, if dead { Err(Reason::TokenRevoked) } else { Ok(()) }, "{user:?} {not_after_iat}");
    }
}

#[test]
fn taking_a_key_away_reaches_cached_tokens() {
    let mut bench = Bench::new();
    let token = bench.mint(json!({}));
    assert!(bench.judge_at(&token, "demo", NOW).is_ok());
    for issuer in &mut bench.message.issuers {
        issuer.keys.retain(|key| key.kid != "dev");
    }
    assert_eq!(bench.judge_at(&token, "demo", NOW), Err(Reason::TokenInvalid));
}

#[test]
fn random_tokens_never_panic() {
    let bench = Bench::new();
    let good = bench.mint(json!({}));
    let mut state = 7_u64;
    for _ in 0..3000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) as usize % good.len();
        let mut bytes = good.clone().into_bytes();
        bytes[at] = b"ABCabc019-_.=+/ "[(state >> 20) as usize % 16];
        let token = String::from_utf8(bytes).unwrap();
        assert_eq!(bench.judge_at(&token, "demo", NOW).is_ok(), token == good, "{token}");
    }
}

#[test]
fn a_running_stream_learns_that_its_token_is_dead() {
    let mut bench = Bench::new();
    let token = bench.mint(json!({"claims": {"jti": "j1"}}));
    let caller = bench.judge_at(&token, "demo", NOW).unwrap();
    let revoked = |bench: &Bench| Snapshot::from_message(bench.message.clone()).unwrap().revoked(&caller);
    assert!(!revoked(&bench));
    let hash = hex(&Sha256::digest(&token));
    for entry in [mark(&["token", "asp-dev", "j1"]), mark(&["org_token_hash", "acme", &hash])] {
        bench.message.revoked = entry.to_vec();
        assert!(revoked(&bench));
    }
    bench.message.revoked = mark(&["org_token", "asp-dev", "globex", "j1"]).to_vec();
    assert!(!revoked(&bench));
    bench.message.revoked = Vec::new();
    let entry =
        RevokedBefore { org: "acme".into(), user: String::new(), not_after_iat: NOW, ..Default::default() };
    bench.message.revoked_before = vec![entry];
    assert!(revoked(&bench));
}

#[test]
fn a_running_stream_learns_that_its_issuer_is_trusted_no_more() {
    let mut bench = Bench::new();
    let caller = bench.judge_at(&bench.mint(json!({})), "demo", NOW).unwrap();
    for issuer in &mut bench.message.issuers {
        issuer.orgs = vec!["globex".into()];
    }
    assert!(Snapshot::from_message(bench.message.clone()).unwrap().revoked(&caller));
    bench.message.issuers.clear();
    bench.message.servers.clear();
    bench.message.exposure.clear();
    assert!(Snapshot::from_message(bench.message.clone()).unwrap().revoked(&caller));
}

#[test]
fn what_is_wrong_with_a_token_is_told_to_the_operator_from_the_cache_too() {
    let bench = Bench::new();
    let snapshot = Snapshot::from_message(bench.message.clone()).unwrap();
    for (claims, cause) in [
        (json!({"groups": ["Domain *"]}), "groups holds `*`"),
        (json!({"org": "a\nb"}), "org contains a control character or a line break"),
        (json!({"sub": null}), "sub is missing"),
        (json!({"aud": "urn:else"}), "aud does not name this server"),
    ] {
        let token = bench.mint(json!({"claims": claims}));
        for _ in 0..2 {
            let refused = bench
                .tokens
                .evaluate(snapshot.trust(snapshot.server("demo").unwrap()), &token, NOW)
                .unwrap_err();
            assert_eq!(refused.cause.map(|cause| cause.to_string()).as_deref(), Some(cause));
        }
    }
}
