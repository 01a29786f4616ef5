//! Refreshes whose answer comes after their link has changed.

use super::*;

impl Heard {
    /// Notifies of a request for tokens, and waits at the gate.
    pub(super) async fn pass(&self) {
        self.asked.notify_one();
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
    }
}

/// Calls with an expired token, and changes the link while the provider is asked for another one.
async fn call_during(world: &World, change: impl AsyncFnOnce()) -> Value {
    world.put_link("old", Duration::ZERO).await;
    let gate = Arc::new(Semaphore::new(0));
    *world.heard.gate.lock() = Some(gate.clone());
    let changing = async {
        world.heard.asked.notified().await;
        change().await;
        gate.add_permits(1);
    };
    let (answer, ()) = tokio::join!(world.call(0), changing);
    answer
}

async fn removed(world: &World) -> usize {
    world.store.claim_removed([1; 16], HOUR, 10).await.unwrap().len()
}

/// A provider may end all tokens of a user with one of them.
#[tokio::test]
async fn tokens_that_come_after_a_new_link_are_neither_used_nor_revoked() {
    let world = World::start().await;
    world.heard.accepted.lock().insert("new".into());
    let answer = call_during(&world, async || world.put_link_as([8; 16], "new", HOUR).await).await;
    assert!(is_done(&answer), "{answer}");
    assert_eq!(*world.heard.calls.lock(), ["Bearer new"]);
    assert_eq!(removed(&world).await, 0);
    assert_eq!(world.store.link(&alice()).await.unwrap().unwrap().id, [8; 16]);
}

#[tokio::test]
async fn tokens_that_come_after_a_removal_are_revoked() {
    let world = World::start().await;
    let of_alice = LinkFilter { org: "acme", subject: "alice", ..LinkFilter::default() };
    let remove = async || assert_eq!(world.store.remove_links(of_alice).await.unwrap(), 1);
    let answer = call_during(&world, remove).await;
    assert!(!is_done(&answer) && world.heard.calls.lock().is_empty(), "{answer}");
    assert_eq!(removed(&world).await, 2, "the former tokens, and those that came late");
}

/// A request with the former token, which the service no longer accepts, came back while it was refreshed.
#[tokio::test]
async fn a_link_that_was_rejected_during_its_refresh_is_alive_again() {
    let world = World::start().await;
    let reject = async || assert!(world.store.mark_dead(LINK, 1).await.unwrap());
    let answer = call_during(&world, reject).await;
    assert!(is_done(&answer), "{answer}");
    assert!(world.store.link(&alice()).await.unwrap().unwrap().is_live);
    assert_eq!(removed(&world).await, 0);
}
