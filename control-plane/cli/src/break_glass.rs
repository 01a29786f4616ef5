//! Emergency access for when the company's login is down: a key in `$ASP_STATE_DIR/break-glass.json`, with which anyone
//! who can read the control plane's state mints an admin token for at most 15 minutes.
//!
//! Keeps true: a token states its reason; its first use is audited before it grants anything (`admin/emergency.rs`); it
//! expires within [`MAX_LIFE`] and can be revoked like any other. With `ASP_BREAK_GLASS=off` no such token is trusted.

use std::path::Path;
use std::time::Duration;

use asp_issuers::trusted_issuer::{ADMIN_AUDIENCE, BREAK_GLASS_ISS, IssuerRules, TrustedIssuer};
use asp_platform::clock;
use asp_platform::secret::Secret;
use serde_json::json;

use crate::local_key::LocalKey;

const FILE: &str = "break-glass.json";
/// Maximum lifetime of a token.
pub const MAX_LIFE: Duration = Duration::from_secs(900);
/// Maximum length of a reason in bytes.
pub const MAX_REASON: usize = 200;

/// The emergency key of one state directory.
pub struct BreakGlass(LocalKey);

impl BreakGlass {
    /// Whether the state directory contains a control plane's emergency key.
    pub fn exists_in(state_dir: &Path) -> std::io::Result<bool> {
        state_dir.join(FILE).try_exists()
    }

    /// Reads the key, creating it if there is none.
    pub fn load_or_create(state_dir: &Path) -> anyhow::Result<BreakGlass> {
        LocalKey::load_or_create(&state_dir.join(FILE)).map(BreakGlass)
    }

    /// Replaces the key with a new one.
    pub fn replace(state_dir: &Path) -> anyhow::Result<()> {
        LocalKey::replace(&state_dir.join(FILE))
    }

    /// Returns the issuer as the admin API trusts it: with the public key only.
    pub fn trusted(&self) -> anyhow::Result<TrustedIssuer> {
        let rules = IssuerRules { max_lifetime: MAX_LIFE.as_secs(), ..IssuerRules::of(BREAK_GLASS_ISS) };
        self.0.trusted(rules)
    }

    /// Mints a token with the `platform` role.
    pub fn mint(&self, user: &str, reason: &str, life: Duration) -> anyhow::Result<Secret> {
        let now = clock::now_ms() / 1_000;
        self.0.sign(&json!({
            "iss": BREAK_GLASS_ISS, "sub": user, "aud": ADMIN_AUDIENCE, "iat": now, "exp": now + life.as_secs(),
            "jti": uuid::Uuid::now_v7().to_string(), "role": "platform", "reason": reason,
        }))
    }
}
