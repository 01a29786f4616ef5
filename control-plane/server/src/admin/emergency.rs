//! The use of an emergency token ([`crate::trusted_issuer::BREAK_GLASS_ISS`]): audited before it opens anything.
//!
//! Keeps true: of each token its first use in this process is in the audit, with its reason; where that cannot be
//! written, the token opens nothing.

use std::collections::HashSet;

use asp_store::control::{Note, Precondition};
use parking_lot::Mutex;

use super::AdminState;
use super::auth::Admin;
use super::problem::Problem;

/// Tokens that are remembered; each lives a quarter of an hour, and few ever live.
const MAX_TOKENS: usize = 1_000;

/// The emergency tokens whose use is in the audit.
#[derive(Default)]
pub struct Emergencies {
    audited: Mutex<HashSet<String>>,
}

/// What an emergency token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emergency {
    /// The token's id.
    pub token: String,
    pub reason: String,
}

/// Audits the first use of the admin's token, if it is one.
pub(super) async fn audit(state: &AdminState, admin: &Admin) -> Result<(), Problem> {
    let Some(emergency) = &admin.emergency else { return Ok(()) };
    if state.emergencies.audited.lock().contains(&emergency.token) {
        return Ok(());
    }
    let resource = format!("token/{}", emergency.token);
    let note = Note { action: "break_glass", resource: &resource, org: "", detail: &emergency.reason };
    state.store.note(&state.change(admin, Precondition::None), note).await?;
    tracing::warn!(
        actor = %admin.actor(), reason = %emergency.reason, token = %emergency.token,
        "an emergency token opens the admin API: whoever runs the platform should know why"
    );
    let mut audited = state.emergencies.audited.lock();
    if audited.len() >= MAX_TOKENS {
        audited.clear();
    }
    audited.insert(emergency.token.clone());
    Ok(())
}
