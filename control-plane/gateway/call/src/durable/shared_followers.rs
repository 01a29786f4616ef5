//! Calls that clients follow at several gateways: a call that is to end without followers ends when it has none at any
//! gateway.
//!
//! Owns: the entries of this gateway for the calls that it mirrors, and the decision about those that run here. Keeps
//! true: a lost gateway does not keep a call for much longer than [`KEEP`] or the call's time; a call is cancelled only
//! if the store knows its followers: after an outage, or a loss of data, every gateway first has time to enter again
//! (I-6).

use std::sync::Arc;
use std::time::Duration;

use asp_store::followers::{Followers, FollowersError};
use asp_store::records::OwnerId;
use uuid::Uuid;

use crate::call::Call;
use crate::call::authority::Authority;
use crate::outage_log::OutageLog;

/// Lifetime of an entry: several renewals may fail.
const KEEP: Duration = Duration::from_secs(20);
/// Interval at which an entry is renewed.
pub const RENEW_EVERY: Duration = Duration::from_secs(4);
/// Interval at which the gateway of a call without followers there looks for followers elsewhere; longer than
/// [`RENEW_EVERY`].
const LOOK_EVERY: Duration = Duration::from_secs(6);

/// The followers of calls at all gateways.
pub struct SharedFollowers {
    followers: Arc<dyn Followers>,
    this: OwnerId,
    outage: OutageLog,
}

impl SharedFollowers {
    pub fn new(followers: Arc<dyn Followers>, this: OwnerId) -> SharedFollowers {
        SharedFollowers { followers, this, outage: OutageLog::default() }
    }

    /// Notes that clients of this gateway follow a call that runs at another one; false if that could not be stored.
    pub async fn enter(&self, call: Uuid) -> bool {
        self.noted(self.followers.enter(call.into_bytes(), self.this, KEEP).await).is_some()
    }

    /// Notes that none does any more. An entry that remains expires.
    pub async fn leave(&self, call: Uuid) {
        self.noted(self.followers.leave(call.into_bytes(), self.this).await);
    }

    /// Cancels a call that runs here, until its end, once it has lost its followers at all gateways.
    pub(super) fn begin(self: &Arc<Self>, call: &Arc<Call>) {
        call.authority.share();
        let shared = self.clone();
        let call = call.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = shared.abandoned(call.id, &call.authority) => call.cancel(),
                _ = call.finished() => {}
            }
        });
    }

    /// Resolves when a call that clients have followed here has no follower at any gateway. Until then it checks
    /// periodically, because a gateway may be lost before it reports that its followers have left.
    async fn abandoned(&self, call: Uuid, authority: &Authority) {
        // After an outage, and if there were other followers, the store may have lost entries: gateways enter again
        // before the next check.
        let mut is_sure = true;
        loop {
            authority.abandoned().await;
            let changed = authority.changed();
            match self.noted(self.followers.any(call.into_bytes()).await) {
                // A client may have returned since.
                Some(false) if is_sure && authority.is_abandoned() => return,
                Some(is_followed) if is_sure || is_followed => {
                    is_sure = !is_followed;
                    // It checks again either way.
                    let _ = tokio::time::timeout(LOOK_EVERY, changed).await;
                }
                found => {
                    is_sure = found.is_some();
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        }
    }

    /// Passes an answer of the store on; an outage is logged once, until the store answers again.
    fn noted<T>(&self, answer: Result<T, FollowersError>) -> Option<T> {
        self.outage.noted(answer, |error| {
            tracing::warn!(%error, "shared followers of calls are unavailable; until they are back, a call whose clients have left runs to its end, because it may have followers at another gateway");
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicBool, Ordering};

    use asp_store::followers::MemoryFollowers;
    use asp_store::records::CallId;
    use async_trait::async_trait;

    use super::*;
    use crate::call::ClientAbilities;
    use crate::call::testkit::caller;

    const CALL: Uuid = Uuid::from_bytes([7; 16]);
    const HERE: OwnerId = OwnerId([1; 16]);
    const ELSEWHERE: OwnerId = OwnerId([2; 16]);
    /// Time within which every check has been made.
    const AFTER: Duration = Duration::from_secs(3600);

    /// Followers that may be unavailable.
    #[derive(Default)]
    struct Away {
        followers: MemoryFollowers,
        is_away: AtomicBool,
    }

    impl Away {
        fn check(&self) -> Result<(), FollowersError> {
            match self.is_away.load(Ordering::SeqCst) {
                true => Err(FollowersError("connection refused".into())),
                false => Ok(()),
            }
        }
    }

    #[async_trait]
    impl Followers for Away {
        async fn enter(&self, call: CallId, gateway: OwnerId, keep: Duration) -> Result<(), FollowersError> {
            self.check()?;
            self.followers.enter(call, gateway, keep).await
        }

        async fn leave(&self, call: CallId, gateway: OwnerId) -> Result<(), FollowersError> {
            self.check()?;
            self.followers.leave(call, gateway).await
        }

        async fn any(&self, call: CallId) -> Result<bool, FollowersError> {
            self.check()?;
            self.followers.any(call).await
        }
    }

    /// Returns a call whose clients here have left, with the shared followers as seen by its own gateway and by another
    /// one.
    fn left() -> (Authority, Arc<Away>, [SharedFollowers; 2]) {
        let store = Arc::new(Away::default());
        let authority = Authority::new(Arc::new(caller("alice")), false, ClientAbilities::default());
        authority.share();
        assert!(!authority.abandon(), "others may follow it");
        let gateways = [HERE, ELSEWHERE].map(|gateway| SharedFollowers::new(store.clone(), gateway));
        (authority, store, gateways)
    }

    async fn resolves(deciding: Pin<&mut impl Future<Output = ()>>, within: Duration) -> bool {
        tokio::time::timeout(within, deciding).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_follows_anywhere_is_abandoned() {
        let (authority, _store, [here, _]) = left();
        let mut deciding = pin!(here.abandoned(CALL, &authority));
        assert!(resolves(deciding.as_mut(), RENEW_EVERY).await);
        let unused = Authority::new(Arc::new(caller("alice")), false, ClientAbilities::default());
        let mut deciding = pin!(here.abandoned(CALL, &unused));
        assert!(!resolves(deciding.as_mut(), AFTER).await, "nobody has followed it yet");
        assert!(unused.abandon(), "a gateway that shares nothing decides alone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_followed_elsewhere_goes_on_until_that_gateway_leaves_or_is_lost() {
        for is_lost in [false, true] {
            let (authority, _store, [here, elsewhere]) = left();
            assert!(elsewhere.enter(CALL).await);
            let mut deciding = pin!(here.abandoned(CALL, &authority));
            assert!(!resolves(deciding.as_mut(), KEEP / 2).await);
            if !is_lost {
                elsewhere.leave(CALL).await;
            }
            assert!(resolves(deciding.as_mut(), KEEP + LOOK_EVERY).await, "{is_lost}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_loses_its_entries_ends_no_call_that_is_followed() {
        let (authority, _store, [here, elsewhere]) = left();
        assert!(elsewhere.enter(CALL).await);
        let mut deciding = pin!(here.abandoned(CALL, &authority));
        assert!(!resolves(deciding.as_mut(), LOOK_EVERY / 2).await);
        // As if the store had lost the entry.
        elsewhere.leave(CALL).await;
        assert!(!resolves(deciding.as_mut(), LOOK_EVERY).await, "the other gateway enters again");
        assert!(elsewhere.enter(CALL).await);
        assert!(!resolves(deciding.as_mut(), KEEP / 2).await);
        assert!(resolves(deciding.as_mut(), AFTER).await);
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_back_keeps_the_call() {
        let (authority, _store, [here, elsewhere]) = left();
        elsewhere.enter(CALL).await;
        let mut deciding = pin!(here.abandoned(CALL, &authority));
        assert!(!resolves(deciding.as_mut(), LOOK_EVERY).await);
        authority.present(&Arc::new(caller("alice")));
        elsewhere.leave(CALL).await;
        assert!(!resolves(deciding.as_mut(), AFTER).await);
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_other_gateways_can_enter_again_before_the_call_is_abandoned() {
        let (authority, store, [here, elsewhere]) = left();
        store.is_away.store(true, Ordering::SeqCst);
        let mut deciding = pin!(here.abandoned(CALL, &authority));
        assert!(!resolves(deciding.as_mut(), AFTER).await);
        assert!(!elsewhere.enter(CALL).await);
        store.is_away.store(false, Ordering::SeqCst);
        assert!(!resolves(deciding.as_mut(), RENEW_EVERY).await, "the store may have lost its entries");
        assert!(elsewhere.enter(CALL).await);
        assert!(!resolves(deciding.as_mut(), KEEP / 2).await);
        assert!(resolves(deciding.as_mut(), AFTER).await);
    }
}
