//! Clients that follow a call at a gateway that does not run it: the call goes on while any gateway has one that may be back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use asp_call::call::authority::Attachment;
use asp_call::call::outcome::Withdrawal;
use asp_call::call::question::Answer;
use asp_call::call::{Call, ClientAbilities};
use asp_edge::Caller;
use asp_protocols::mcp::elsewhere;
use asp_runtime_client::runtimes::Runtimes;
use asp_store::followers::{Followers, FollowersError, MemoryFollowers};
use asp_store::outbox::MemoryOutbox;
use asp_store::records::{CallId, OwnerId};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};

use super::inbox::{Gateways, asked};
use super::mirrored::call_at;
use super::takeover::{row, send};
use super::{
    asks_model, asks_name, last_result, modern, progress, until, until_async, user_input, with_token,
};
use crate::registry::caller;
use crate::runtime::{Runtime, Script, Worker};
use crate::support::{Fixture, Modern};

/// A call that has asked at the first gateway and has its answer, and goes on; the request that follows it at any of them.
async fn goes_on_after_asking(gateways: &Gateways, runtime: &Runtime) -> (Arc<Call>, Modern) {
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
    let asked = asked(gateways, runtime).await;
    let call = call_at(&gateways.first, runtime).await;
    assert!(call.questions.answer("plugins.name", Answer::Accepted(json!({"name": "Ada"}).into())));
    let again = json!({"requestState": asked["requestState"], "inputResponses": {}});
    (call, with_token(modern("sweep", again).capabilities(json!({"elicitation": {}}))))
}

/// A stream that follows the call at another gateway, once that one shows that it goes on.
async fn followed(fixture: &Fixture, runtime: &Runtime, follow: &Modern) -> axum::response::Response {
    let mirror = call_at(fixture, runtime).await;
    until("it is shown that it goes on", || mirror.questions.pending().is_empty()).await;
    follow.open(fixture).await
}

/// A worker that asks for a name, says how far it is, and does not end.
fn asks_and_goes_on() -> Script {
    Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        user_input(&mut worker).await;
        worker.say(progress(&invoke.request_id, 50.0)).await;
        while worker.next().await.is_some() {}
    })
}

#[tokio::test]
async fn a_call_ends_with_its_last_follower_at_all_gateways() {
    let runtime = Runtime::start(asks_and_goes_on());
    let gateways = Gateways::over(&runtime, Arc::new(MemoryOutbox::default()));
    let (call, follow) = goes_on_after_asking(&gateways, &runtime).await;
    let [second, third] = [(), ()].map(|()| gateways.another(Runtimes::none()));
    let at_second = followed(&second, &runtime, &follow).await;
    let at_third = followed(&third, &runtime, &follow).await;
    drop(at_second);
    until("the second gateway says that its client has left", || gateways.inbox.puts() == 1).await;
    gateways.miss();
    until_async("the first one knows", async || gateways.inbox.is_empty().await).await;
    assert!(!call.is_cancelled(), "it is followed at the third");
    drop(at_third);
    until("the third gateway says so", || gateways.inbox.puts() == 2).await;
    gateways.miss();
    until("nobody follows it", || call.is_cancelled()).await;
}

/// Followers that count what a gateway says of its own, and take no entry while a test holds them up.
#[derive(Default)]
struct CountedFollowers {
    followers: MemoryFollowers,
    entered: AtomicUsize,
    left: AtomicUsize,
    entry: Mutex<()>,
}

#[async_trait]
impl Followers for CountedFollowers {
    async fn enter(&self, call: CallId, gateway: OwnerId, keep: Duration) -> Result<(), FollowersError> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let _turn = self.entry.lock().await;
        self.followers.enter(call, gateway, keep).await
    }

    async fn leave(&self, call: CallId, gateway: OwnerId) -> Result<(), FollowersError> {
        self.left.fetch_add(1, Ordering::SeqCst);
        self.followers.leave(call, gateway).await
    }

    async fn any(&self, call: CallId) -> Result<bool, FollowersError> {
        self.followers.any(call).await
    }
}

/// A worker that asks for a name, asks a model when it is told to, says how far it is when it is told to, and does not end.
fn asks_twice(goes_on: Arc<Notify>) -> Script {
    Script::of(move |_, mut worker: Worker| {
        let goes_on = goes_on.clone();
        async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            worker.say(asks_name(&invoke.request_id)).await;
            user_input(&mut worker).await;
            goes_on.notified().await;
            worker.say(asks_model(&invoke.request_id)).await;
            goes_on.notified().await;
            worker.say(progress(&invoke.request_id, 50.0)).await;
            while worker.next().await.is_some() {}
        }
    })
}

/// A request of a client that answers forms and asks a model.
fn can_both(extra: Value) -> Modern {
    with_token(modern("sweep", extra).capabilities(json!({"elicitation": {}, "sampling": {}})))
}

/// A call of [`asks_twice`] whose client has left the second gateway to ask its model. What it was asked there.
async fn left_to_answer(
    gateways: &mut Gateways,
    runtime: &Runtime,
    goes_on: &Notify,
    followers: Arc<CountedFollowers>,
) -> (Arc<Call>, Fixture, Value) {
    tokio::spawn(elsewhere::listen(Arc::downgrade(&gateways.first.gateway.replica)));
    let asked = last_result(&can_both(json!({})).send(&gateways.first).await);
    row(&gateways.first, runtime, |row| !row.memory.is_empty()).await;
    let call = call_at(&gateways.first, runtime).await;
    assert!(call.questions.answer("plugins.name", Answer::Accepted(json!({"name": "Ada"}).into())));
    gateways.shared.followers = followers.clone();
    let second = gateways.another(Runtimes::none());
    let mirror = call_at(&second, runtime).await;
    until("it is shown that it goes on", || mirror.questions.pending().is_empty()).await;
    let follow = json!({"requestState": asked["requestState"], "inputResponses": {}});
    let following = send(can_both(follow), &second);
    until("its entry is kept", || followers.entered.load(Ordering::SeqCst) >= 2).await;
    goes_on.notify_one();
    let asked = last_result(&following.await.unwrap());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    until("that it has left is stored", || gateways.inbox.puts() == 1).await;
    (call, second, asked)
}

/// Its own gateway may look for followers before it hears that the client will be back.
#[tokio::test]
async fn a_client_that_goes_away_to_answer_from_another_gateway_still_counts_there() {
    let goes_on = Arc::new(Notify::new());
    let runtime = Runtime::start(asks_twice(goes_on.clone()));
    let mut gateways = Gateways::over(&runtime, Arc::new(MemoryOutbox::default()));
    let followers = Arc::new(CountedFollowers::default());
    left_to_answer(&mut gateways, &runtime, &goes_on, followers.clone()).await;
    assert_eq!(followers.left.load(Ordering::SeqCst), 0, "its entry ends by itself");
}

#[tokio::test]
async fn a_client_that_comes_back_and_leaves_before_its_first_departure_is_known_has_left() {
    let goes_on = Arc::new(Notify::new());
    let runtime = Runtime::start(asks_twice(goes_on.clone()));
    let mut gateways = Gateways::over(&runtime, Arc::new(MemoryOutbox::default()));
    let followers = Arc::new(CountedFollowers::default());
    let (call, second, asked) = left_to_answer(&mut gateways, &runtime, &goes_on, followers).await;
    goes_on.notify_one();
    let label = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": r#"{"label": "high"}"#}});
    let answers =
        json!({"requestState": asked["requestState"], "inputResponses": {"plugins.label.2": label}});
    drop(can_both(answers).open(&second).await);
    until("the answer and that it has left for good are told", || gateways.inbox.puts() >= 3).await;
    let has_ended = async || {
        gateways.miss();
        call.is_cancelled()
    };
    until_async("the call ends with it", has_ended).await;
}

#[tokio::test]
async fn a_client_that_goes_away_before_it_follows_the_call_at_another_gateway_has_left() {
    let runtime = Runtime::start(asks_and_goes_on());
    let mut gateways = Gateways::over(&runtime, Arc::new(MemoryOutbox::default()));
    let followers = Arc::new(CountedFollowers::default());
    gateways.shared.followers = followers.clone();
    let (call, follow) = goes_on_after_asking(&gateways, &runtime).await;
    let second = gateways.another(Runtimes::none());
    let at_second = followed(&second, &runtime, &follow).await;
    let entered = || followers.entered.load(Ordering::SeqCst);
    until("its entry is kept", || entered() >= 2).await;
    let before = entered();
    let held_up = followers.entry.lock().await;
    let returning = send(follow.clone(), &second);
    until("it is about to follow the call", || entered() > before).await;
    drop(at_second);
    returning.abort();
    assert!(returning.await.is_err_and(|ended| ended.is_cancelled()), "before it followed the call");
    drop(held_up);
    until("that both have left is stored", || gateways.inbox.puts() == 1).await;
    gateways.miss();
    until("nobody follows it", || call.is_cancelled()).await;
}

#[tokio::test]
async fn a_departure_that_stays_in_the_inbox_counts_once() {
    let runtime = Runtime::start(asks_and_goes_on());
    let gateways = Gateways::over(&runtime, Arc::new(MemoryOutbox::default()));
    let (call, follow) = goes_on_after_asking(&gateways, &runtime).await;
    let (id, another) = (call.id.into_bytes(), OwnerId([9; 16]));
    gateways.shared.followers.enter(id, another, Duration::from_secs(3600)).await.unwrap();
    gateways.inbox.removes_nothing.store(true, Ordering::SeqCst);
    let second = gateways.another(Runtimes::none());
    drop(followed(&second, &runtime, &follow).await);
    until("that it has left is stored", || gateways.inbox.puts() == 1).await;
    gateways.miss();
    let removals = || gateways.inbox.removals.load(Ordering::SeqCst);
    until("its gateway knows", || removals() > 0).await;
    // Its client is at its own gateway again, and goes away to answer.
    let can = ClientAbilities { elicitation: true, ..ClientAbilities::default() };
    Attachment::to(call.clone(), can).leave_to_answer();
    gateways.shared.followers.leave(id, another).await.unwrap();
    let before = removals();
    gateways.miss();
    until("its gateway looks again", || removals() > before).await;
    gateways.inbox.removes_nothing.store(false, Ordering::SeqCst);
    gateways.miss();
    until_async("the entry is gone", async || gateways.inbox.is_empty().await).await;
    assert!(!call.is_cancelled(), "its client will be back");
}

#[tokio::test]
async fn a_follower_whose_token_expires_at_another_gateway_leaves_and_cancels_nothing() {
    let runtime = Runtime::start(asks_and_goes_on());
    let gateways = Gateways::over(&runtime, Arc::new(MemoryOutbox::default()));
    let (call, follow) = goes_on_after_asking(&gateways, &runtime).await;
    let [second, third] = [(), ()].map(|()| gateways.another(Runtimes::none()));
    let at_third = followed(&third, &runtime, &follow).await;
    let mirror = call_at(&second, &runtime).await;
    let expired = Caller { expires_at: 1, ..caller("alice") };
    second.gateway.pipeline.internals().running.attend(&mirror, &Arc::new(expired));
    until("its token is over", || mirror.withdrawal() == Some(Withdrawal::TokenExpired)).await;
    until("that it has left is stored", || gateways.inbox.puts() == 1).await;
    gateways.miss();
    until_async("its gateway knows", async || gateways.inbox.is_empty().await).await;
    assert!(!call.is_cancelled(), "it is followed at the third");
    let fresh = call_at(&second, &runtime).await;
    assert!(fresh.withdrawal().is_none(), "who comes with a fresh token follows it");
    drop(at_third);
}
