//! Credentials that callers of all worlds bring: tokens, keys and certificates of machines.
//!
//! Tokens and keys are made once. What a world stores about a machine, and what an issuer may say, changes around them.

use std::time::{SystemTime, UNIX_EPOCH};

use asp_edge::testkit::SigningKey;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::random::Random;
use crate::world::{GROUPS, ISSUERS, List, MACHINES, ORGS, SCOPES, SERVERS, Text};

pub(crate) const PUBLIC_URL: &str = "https://mcp.example.com";
/// Ids of the machines' keys and certificates.
pub(crate) const MACHINE_IDS: [Text; MACHINES] = ["m0", "m1", "c2", "c3"];
/// Machines with a lower number have a key, the others a certificate.
pub(crate) const KEYS: usize = 2;
/// Name of the only key of both issuers.
const KID: &str = "k1";

/// A signed token and its claims.
pub(crate) struct Token {
    pub(crate) issuer: Text,
    pub(crate) org: Text,
    pub(crate) user: Text,
    pub(crate) groups: List,
    pub(crate) scopes: List,
    pub(crate) jti: Text,
    pub(crate) compact: String,
}

/// What a caller brings. Numbers are those of a token, or of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credential {
    Nothing,
    Token(usize),
    Key(usize),
    /// A key with the id of a machine's and another secret.
    WrongKey(usize),
    Certificate(usize),
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) credential: Credential,
    pub(crate) server: Text,
    /// `mcp` or `rest`.
    pub(crate) protocol: Text,
}

/// All tokens, and the key that verifies them.
pub(crate) struct Credentials {
    pub(crate) tokens: Vec<Token>,
    pub(crate) jwk: Value,
}

impl Credentials {
    /// Signs a token for each issuer, org, user, set of groups and set of scopes.
    pub(crate) fn new() -> Credentials {
        // Err: installed before, by another test of this process.
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        let key = SigningKey::es256();
        let mut tokens = Vec::new();
        for (issuer, org) in ISSUERS.into_iter().flat_map(|issuer| ORGS.map(|org| (issuer, org))) {
            for (user, groups) in ["press", "alice"].into_iter().flat_map(|user| GROUPS.map(|g| (user, g))) {
                for scopes in SCOPES {
                    let jti = if tokens.len().is_multiple_of(3) { "t-1" } else { "t-2" };
                    let mut token = Token { issuer, org, user, groups, scopes, jti, compact: String::new() };
                    token.compact = token.sign(&key);
                    tokens.push(token);
                }
            }
        }
        Credentials { tokens, jwk: key.jwk_named(KID) }
    }

    /// Returns the value of the `authorization` header, if the credential has one.
    pub(crate) fn authorization(&self, credential: Credential) -> Option<String> {
        match credential {
            Credential::Nothing | Credential::Certificate(_) => None,
            Credential::Token(number) => Some(format!("Bearer {}", self.tokens[number].compact)),
            Credential::Key(number) => Some(format!("Bearer {}", key(number))),
            Credential::WrongKey(number) => Some(format!("Bearer {}", wrong_key(number))),
        }
    }

    pub(crate) fn question(&self, random: &mut Random) -> Question {
        let credential = match random.below(16) {
            0 => Credential::Nothing,
            1 => Credential::WrongKey(random.below(KEYS)),
            2..5 => Credential::Key(random.below(KEYS)),
            5..8 => Credential::Certificate(KEYS + random.below(MACHINES - KEYS)),
            _ => Credential::Token(random.below(self.tokens.len())),
        };
        Question { credential, server: random.of(&SERVERS), protocol: random.of(&["mcp", "rest"]) }
    }
}

impl Token {
    fn sign(&self, key: &SigningKey) -> String {
        let now = now_ms() / 1_000;
        let claims = json!({
            "iss": iss(self.issuer), "sub": self.user, "org": self.org, "groups": self.groups,
            "scope": self.scopes.join(" "), "aud": PUBLIC_URL, "client_id": "cli", "jti": self.jti,
            "iat": now - 10, "exp": now + 3_600,
        });
        key.access_token(KID, &claims)
    }
}

/// Returns the `iss` claim of an issuer.
pub(crate) fn iss(issuer: &str) -> String {
    format!("https://{issuer}.example")
}

pub(crate) fn key(machine: usize) -> String {
    format!("asp_psk_{}_{}", MACHINE_IDS[machine], "s".repeat(43))
}

pub(crate) fn wrong_key(machine: usize) -> String {
    format!("asp_psk_{}_{}", MACHINE_IDS[machine], "w".repeat(43))
}

/// Returns the SHA-256 of a machine's key, in hex.
pub(crate) fn hash(machine: usize) -> String {
    hex(&Sha256::digest(key(machine)))
}

/// Returns what stands for the SHA-256 of a machine's certificate.
pub(crate) fn fingerprint(machine: usize) -> [u8; 32] {
    [u8::try_from(machine).unwrap(); 32]
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the wall clock in Unix milliseconds. Nothing ends or begins while the worlds pass.
pub(crate) fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(elapsed.as_millis()).unwrap()
}
