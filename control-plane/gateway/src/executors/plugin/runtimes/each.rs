//! Something for each runtime there is, as long as it is there.

use std::sync::Arc;

use tokio::sync::watch;

use super::choice::is_among;
use super::{Members, Runtime};

/// Keeps what `begin` makes for each runtime, and drops it when that is no more. `meets` is told of all of them whenever they
/// change, before the others; `gone` of each that is no more. Never returns.
pub(in super::super) async fn keep_for_each<T>(
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
        // Err: there will be no others.
        if all.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
