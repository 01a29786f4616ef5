//! A value for each runtime, kept as long as the runtime is a member.

use std::sync::Arc;

use tokio::sync::watch;

use super::choice::is_among;
use super::{Members, Runtime};

/// Keeps the value that `begin` makes for each runtime, and drops it once the runtime is no longer a member. `meets`
/// is called with all members whenever they change, before the others; `gone` with each removed one. Never returns.
pub async fn keep_for_each<T>(
    mut all: watch::Receiver<Members>,
    meets: impl Fn(&Members),
    begin: impl Fn(&Arc<Runtime>) -> T,
    gone: impl Fn(&Runtime),
) {
    let mut kept: Vec<(Arc<Runtime>, T)> = Vec::new();
    loop {
        let members = all.borrow_and_update().clone();
        meets(&members);
        kept.retain(|(runtime, _)| {
            let stays = is_among(runtime, &members);
            if !stays {
                gone(runtime);
            }
            stays
        });
        for runtime in members.iter() {
            if !kept.iter().any(|(known, _)| Arc::ptr_eq(known, runtime)) {
                kept.push((runtime.clone(), begin(runtime)));
            }
        }
        // Err: the members will not change any more.
        if all.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
