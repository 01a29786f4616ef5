//! Use of emergency tokens ([`asp_issuers::trusted_issuer::BREAK_GLASS_ISS`]): audited before access is granted.
//!
//! Keeps true: the first use of each token in this process is in the audit, with its reason; if that cannot be written,
//! the token grants no access.

use std::collections::VecDeque;

use asp_store::control::{Change, Note};
use parking_lot::Mutex;

use super::AdminState;
use super::problem::Result;

/// Maximum number of tokens that are remembered; each lives a quarter of an hour, and few are ever live.
const MAX_TOKENS: usize = 1_000;

/// Emergency tokens whose use has been audited.
#[derive(Default)]
pub struct Emergencies {
    /// Tokens in the order of their first use.
    audited: Mutex<VecDeque<String>>,
}

impl Emergencies {
    fn has(&self, token: &str) -> bool {
        self.audited.lock().iter().any(|known| known == token)
    }

    /// Remembers a token. If there are too many, forgets the one used first: its next use is audited again.
    fn keep(&self, token: &str) {
        let mut audited = self.audited.lock();
        if audited.iter().any(|known| known == token) {
            return;
        }
        if audited.len() >= MAX_TOKENS {
            audited.pop_front();
        }
        audited.push_back(token.to_owned());
    }
}

/// Claims of an emergency token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emergency {
    /// The token's id.
    pub token: String,
    pub reason: String,
}

/// Audits the first use of an emergency token; `change` names its admin.
pub(super) async fn audit(state: &AdminState, emergency: &Emergency, change: &Change) -> Result<()> {
    if state.emergencies.has(&emergency.token) {
        return Ok(());
    }
    let resource = format!("token/{}", emergency.token);
    let note = Note { action: "break_glass", resource: &resource, org: "", detail: &emergency.reason };
    state.store.note(change, note).await?;
    tracing::warn!(
        actor = %change.actor, reason = %emergency.reason, token = %emergency.token,
        "an emergency token is used for the admin API; make sure that the platform's operator knows the reason"
    );
    state.emergencies.keep(&emergency.token);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_forgets_the_token_used_first_and_no_other() {
        let emergencies = Emergencies::default();
        for n in 0..=MAX_TOKENS {
            emergencies.keep(&n.to_string());
            emergencies.keep(&n.to_string());
        }
        assert!(!emergencies.has("0"));
        for kept in 1..=MAX_TOKENS {
            assert!(emergencies.has(&kept.to_string()), "{kept}");
        }
    }
}
