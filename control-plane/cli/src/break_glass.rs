//! The way in when the company's login is away: a key in `$ASP_STATE_DIR/break-glass.json`, by which whoever may read the
//! control plane's state mints an admin token for a quarter of an hour.
//!
//! Keeps true: a token says why; its first use is audited before it opens anything (`admin/emergency.rs`); it ends by
//! itself within [`MAX_LIFE`], and is revoked as any other. `ASP_BREAK_GLASS=off` trusts none.

use std::path::Path;
use std::time::Duration;

use asp_control::clock;
use asp_control::trusted_issuer::{ADMIN_AUDIENCE, BREAK_GLASS_ISS, IssuerRules, TrustedIssuer};
use asp_platform::secret::Secret;
use serde_json::json;

use crate::local_key::{LocalKey, LocalKeyError};

const FILE: &str = "break-glass.json";
/// The longest life of a token.
pub const MAX_LIFE: Duration = Duration::from_secs(900);
/// Longest reason, in bytes.
pub const MAX_REASON: usize = 200;

/// The key of one state directory.
pub struct BreakGlass(LocalKey);

impl BreakGlass {
    /// Whether the state directory has the key of a control plane.
    pub fn is_in(state_dir: &Path) -> std::io::Result<bool> {
        state_dir.join(FILE).try_exists()
    }

    /// Reads it, creating it when there is none.
    pub fn load_or_create(state_dir: &Path) -> Result<BreakGlass, LocalKeyError> {
        LocalKey::load_or_create(&state_dir.join(FILE)).map(BreakGlass)
    }

    /// Puts a new key in its place.
    pub fn replace(state_dir: &Path) -> Result<(), LocalKeyError> {
        LocalKey::replace(&state_dir.join(FILE))
    }

    /// What the admin API verifies with: the public key only.
    pub fn trusted(&self) -> Result<TrustedIssuer, LocalKeyError> {
        let rules = IssuerRules { max_lifetime: MAX_LIFE.as_secs(), ..IssuerRules::of(BREAK_GLASS_ISS) };
        self.0.trusted(rules)
    }

    /// Mints a token of the whole platform.
    pub fn mint(&self, user: &str, reason: &str, life: Duration) -> Result<Secret, LocalKeyError> {
        let now = clock::now_ms() / 1_000;
        self.0.sign(&json!({
            "iss": BREAK_GLASS_ISS, "sub": user, "aud": ADMIN_AUDIENCE, "iat": now, "exp": now + life.as_secs(),
            "jti": uuid::Uuid::now_v7().to_string(), "role": "platform", "reason": reason,
        }))
    }
}
