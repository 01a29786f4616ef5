//! An issuer for tests: a fresh key, and tokens with the claims that a test wants.

use std::sync::Arc;

use asp_edge::testkit::SigningKey;
use asp_issuers::trust::{StaticIssuers, Trust};
use asp_issuers::trusted_issuer::{ADMIN_AUDIENCE, IssuerRules, MAX_TTL, TYP, TrustedIssuer};
use asp_platform::clock;
use asp_proto::snapshot;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::{Value, json};

/// Name in `server.yaml`.
const NAME: &str = "dev";
const ISS: &str = "asp-test";
const KID: &str = "test";

pub(crate) struct TestIssuer {
    key: SigningKey,
    jwk: Value,
}

impl TestIssuer {
    pub(crate) fn new() -> TestIssuer {
        // Err: installed before, by another test of this process.
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        let key = SigningKey::es256();
        TestIssuer { jwk: key.jwk_named(KID), key }
    }

    /// The public key.
    pub(crate) fn jwk(&self) -> &Value {
        &self.jwk
    }

    /// Returns the issuer for edges and gateways.
    pub(crate) fn snapshot(&self) -> snapshot::Issuer {
        let key = snapshot::Key { kid: KID.into(), alg: "ES256".into(), jwk: self.jwk.to_string() };
        snapshot::Issuer {
            name: NAME.into(),
            iss: ISS.into(),
            keys: vec![key],
            typ: vec![TYP.into()],
            max_lifetime_seconds: MAX_TTL.as_secs(),
            orgs: vec!["*".into()],
            ..snapshot::Issuer::default()
        }
    }

    /// Returns the issuer for the admin API.
    pub(crate) fn trusted(&self) -> TrustedIssuer {
        let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(self.jwk.clone()).unwrap();
        TrustedIssuer {
            kid: KID.into(),
            algorithm: Algorithm::ES256,
            key: DecodingKey::from_jwk(&jwk).unwrap(),
            rules: Arc::new(IssuerRules::of(ISS)),
        }
    }

    /// Returns both, as given to a process at start.
    pub(crate) fn trust(&self) -> Trust {
        let (clients, admins) = (vec![self.snapshot()], vec![self.trusted()]);
        Trust::new(StaticIssuers { clients, admins, ..StaticIssuers::default() })
    }

    /// A token of the admin `ops` with a role.
    pub(crate) fn admin(&self, role: &str, seconds: u64) -> String {
        self.sign(json!({ "sub": "ops", "aud": ADMIN_AUDIENCE, "role": role }), seconds)
    }

    /// A token of the admin `ops` from another issuer, with another key id.
    pub(crate) fn admin_of(&self, iss: &str, kid: &str, role: &str) -> String {
        let claims = json!({ "sub": "ops", "aud": ADMIN_AUDIENCE, "role": role });
        self.sign_as(iss, kid, claims, MAX_TTL.as_secs())
    }

    /// A platform token with additional or replaced members in header and claims.
    pub(crate) fn admin_with(&self, header: &Value, claims: &Value) -> String {
        let now = clock::now_ms() / 1_000;
        let mut own_header = json!({ "alg": "ES256", "typ": TYP, "kid": KID });
        let mut own_claims = json!({
            "iss": ISS, "sub": "ops", "aud": ADMIN_AUDIENCE, "role": "platform",
            "jti": "j", "iat": now, "exp": now + 60,
        });
        for (own, other) in [(&mut own_header, header), (&mut own_claims, claims)] {
            own.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        }
        self.key.token(&own_header, &own_claims)
    }

    /// A token of a workload that the issuer `iss` describes by claims.
    pub(crate) fn workload(&self, iss: &str, mut claims: Value) -> String {
        claims["sub"] = json!("repo:acme/billing");
        claims["aud"] = json!(ADMIN_AUDIENCE);
        self.sign_as(iss, KID, claims, MAX_TTL.as_secs())
    }

    /// A token of a client of the platform.
    pub(crate) fn client(&self, org: &str, user: &str, audience: &str) -> String {
        self.sign(json!({ "sub": user, "aud": audience, "org": org }), MAX_TTL.as_secs())
    }

    fn sign(&self, claims: Value, seconds: u64) -> String {
        self.sign_as(ISS, KID, claims, seconds)
    }

    fn sign_as(&self, iss: &str, kid: &str, mut claims: Value, seconds: u64) -> String {
        let now = clock::now_ms() / 1_000;
        claims["iss"] = json!(iss);
        claims["iat"] = json!(now);
        claims["exp"] = json!(now + seconds);
        claims["jti"] = json!(uuid::Uuid::now_v7().to_string());
        self.key.access_token(kid, &claims)
    }
}
